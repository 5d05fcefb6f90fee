"""Contract suites for code of one's own: inherit one, say how your thing is made, and pytest runs what the framework
relies on.

    env.EnvContract, multi_env.MultiEnvContract              engines
    store.StoreContract                                      stores of experience
    algorithm.AlgorithmContract, algorithm.CompiledContract  algorithms
    sink.SinkContract                                        sinks
    pool.PoolContract                                        pools
    resume.ResumeContract                                    whole runs: killed and resumed = uninterrupted

The suites need pytest only to be run: they import nothing of it (`pip install pytest`).
"""
