"""The operating system: child processes and how they end, shared memory, CPU quota, imports of users' modules, files
that are not trusted."""
