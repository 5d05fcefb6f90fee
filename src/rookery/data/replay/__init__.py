"""The replay of a run: transitions are written in `store` and `ring`, drawn in `reader`, `sequences` and
`prioritised`.
"""
