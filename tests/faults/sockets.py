"""Who listens where: the sockets of a run's processes, as the kernel lists them."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

LISTENING = "0A"
Address = tuple[str, int]


def descendants(pid: int) -> list[int]:
    """A process and all that it started, and those, as long as their parents live."""
    children = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended
            children[int(stat.read_text().rpartition(")")[2].split()[1])].append(int(stat.parent.name))
    family = [pid]
    for member in family:
        family += children[member]
    return family


def listening(pid: int) -> set[Address]:
    """TCP addresses on which a process and its descendants listen."""
    owned = set()
    for member in descendants(pid):
        with suppress(OSError):
            for name in os.listdir(f"/proc/{member}/fd"):
                with suppress(OSError):
                    owned.add(os.readlink(f"/proc/{member}/fd/{name}"))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and f"socket:[{fields[9]}]" in owned:
                found.add(_address(fields[1]))
    return found


def is_local(address: Address) -> bool:
    host = ipaddress.ip_address(address[0])
    return (getattr(host, "ipv4_mapped", None) or host).is_loopback


def _address(text: str) -> Address:
    """From the kernel's hexadecimal words, each in the order of this machine's bytes."""
    words, port = text.split(":")
    data = b"".join(struct.pack("=I", int(words[i : i + 8], 16)) for i in range(0, len(words), 8))
    return socket.inet_ntop(socket.AF_INET if len(data) == 4 else socket.AF_INET6, data), int(port, 16)


def knock(address: Address, number: int) -> socket.socket | None:
    """Connect without knowing the secret, and claim to be somebody; None if nobody answers any more."""
    try:
        stranger = socket.create_connection(address, timeout=1.0)
        stranger.sendall(number.to_bytes(8, "little") + b"let me in" * 10)
    except OSError:
        return None
    return stranger
