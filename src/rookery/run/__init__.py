"""A run, from config to summary.

config/        what a run is told             collect/      envs stepped, rows filled
pools/         where collectors live: here,   trainer.py    the loop: collect, store, update, report
               in processes, on Ray           players.py    who acts and learns; chunks go into stores
report/        meters, progress, sinks        checkpoints/  written, read, migrated
callbacks/     users' code in the loop        experiment/   the folder, resume, recovery, summary
build.py       all of it, from a config       evaluate.py, load.py    policies judged and loaded
"""
