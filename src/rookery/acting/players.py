"""Players and seats: a seat is one agent in one env, a player a named policy; a seating says who sits where.

Single-agent training is one player, `main`, in every seat. Policy mapping, parameter sharing, opponents and leagues are
seatings (rookery.run.collect.seats) and nothing else.
"""

from __future__ import annotations

MAIN = "main"  # the player of single-agent training
