"""Engines that step many envs at once: in this process, native, gymnasium's vectors, EnvPool, Atari."""
