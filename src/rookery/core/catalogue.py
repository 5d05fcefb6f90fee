"""The names that Rookery itself brings: strings only, so that listing them imports nothing.

`registry` is the way to them.
"""

from __future__ import annotations

_ALGOS = "rookery.algos."
_ZOO = "rookery.zoo."
_WRAPPERS = "rookery.envs.wrappers:"
_NETS = "rookery.nets."
_SINKS = "rookery.run.report.sinks."
_TASKS = "rookery.envs.tasks."
_MATRIX = f"{_TASKS}matrix_games:"
_TRAFFIC = f"{_TASKS}traffic:"
_GAMES = "rookery.envs.tasks.games:"
_TEAMS = "rookery.envs.tasks.team_probes:"
BUILTIN: dict[str, dict[str, tuple[str, str]]] = {  # kind → name → (target, summary)
    "algo": {
        "dqn": (f"{_ALGOS}dqn:DQN", "deep Q-learning: double, dueling and n-step as options"),
        "vdn": (f"{_ALGOS}vdn:VDN", "teams: the sum of the members' values"),
        "qmix": (f"{_ALGOS}qmix:QMIX", "teams: a value that grows with each member's; weighted as an option"),
        "coma": (f"{_ALGOS}coma:COMA", "teams: policy gradient with credit to each member by a counterfactual critic"),
        "maddpg": (f"{_ALGOS}maddpg:MADDPG", "teams: DDPG with critics that see what all members see and do"),
        "atoc": (f"{_ALGOS}atoc:ATOC", "teams: members learn when to communicate, in groups; continuous or discrete"),
        "collaq": (f"{_ALGOS}collaq:CollaQ", "teams: QMIX of what a member is worth alone and what others add to it"),
        "c51": (f"{_ALGOS}c51:C51", "distributions of the return on fixed atoms"),
        "rainbow": (f"{_ALGOS}rainbow:Rainbow", "C51 with double, dueling, noisy, three-step and prioritised learning"),
        "qrdqn": (f"{_ALGOS}qrdqn:QRDQN", "distributions of the return by fixed quantiles"),
        "iqn": (f"{_ALGOS}iqn:IQN", "the quantile function of the return; policies that avoid or seek risk"),
        "fqf": (f"{_ALGOS}fqf:FQF", "quantiles at fractions that are learnt as well"),
        "mdqn": (f"{_ALGOS}mdqn:MDQN", "Munchausen DQN: the log-policy in the reward, soft bootstrap"),
        "pqn": (f"{_ALGOS}pqn:PQN", "Q-learning from many envs at once, without replay and target network"),
        "r2d2": (f"{_ALGOS}r2d2:R2D2", "recurrent DQN from sequences with burn-in and stored state"),
        "ppo": (f"{_ALGOS}ppo:PPO", "clipped policy gradient: discrete, continuous, multi-discrete, masked"),
        "a2c": (f"{_ALGOS}a2c:A2C", "actor-critic, one update per short rollout: any actions, masked, with memory"),
        "reinforce": (
            f"{_ALGOS}reinforce:Reinforce",
            "policy gradient with whole episodes' returns, baseline optional",
        ),
        "trpo": (f"{_ALGOS}trpo:TRPO", "natural policy gradient within a trust region"),
        "ppg": (f"{_ALGOS}ppg:PPG", "PPO in phases: an auxiliary phase teaches the policy's network what values know"),
        "impala": (
            f"{_ALGOS}impala:IMPALA",
            "actor-critic from rollouts of older policies, corrected by V-trace; UPGO",
        ),
        "appo": (f"{_ALGOS}appo:APPO", "PPO on rollouts of older policies, corrected by V-trace"),
        "sac": (f"{_ALGOS}sac:SAC", "soft actor-critic with automatic temperature, continuous actions"),
        "sac-discrete": (f"{_ALGOS}sac_discrete:SACDiscrete", "soft actor-critic for discrete actions, masked or not"),
        "ddpg": (f"{_ALGOS}ddpg:DDPG", "deterministic policy gradient, Gaussian or Ornstein–Uhlenbeck noise"),
        "td3": (f"{_ALGOS}td3:TD3", "DDPG with twin critics, a delayed policy and smoothed targets"),
        "redq": (f"{_ALGOS}redq:REDQ", "SAC with an ensemble of critics and many updates per step"),
        "tqc": (f"{_ALGOS}tqc:TQC", "SAC with quantile critics whose largest quantiles are left out of targets"),
        "crossq": (f"{_ALGOS}crossq:CrossQ", "SAC with batch renormalisation and without target networks"),
    },
    "preset": {
        "cartpole-dqn": (f"{_ZOO}cartpole:CARTPOLE_DQN", "CartPole-v1 with DQN"),
        "cartpole-dqn-per": (f"{_ZOO}cartpole:CARTPOLE_DQN_PER", "CartPole-v1 with DQN and prioritised replay"),
        "cartpole-ppo": (f"{_ZOO}cartpole:CARTPOLE_PPO", "CartPole-v1 with PPO"),
        "cartpole-novel-r2d2": (f"{_ZOO}cartpole:CARTPOLE_NOVEL_R2D2", "CartPole without velocities, with R2D2"),
        "cartpole-c51": (f"{_ZOO}cartpole:CARTPOLE_C51", "CartPole-v1 with C51"),
        "cartpole-rainbow": (f"{_ZOO}cartpole:CARTPOLE_RAINBOW", "CartPole-v1 with Rainbow"),
        "cartpole-qrdqn": (f"{_ZOO}cartpole:CARTPOLE_QRDQN", "CartPole-v1 with QR-DQN"),
        "cartpole-iqn": (f"{_ZOO}cartpole:CARTPOLE_IQN", "CartPole-v1 with IQN"),
        "cartpole-fqf": (f"{_ZOO}cartpole:CARTPOLE_FQF", "CartPole-v1 with FQF"),
        "cartpole-mdqn": (f"{_ZOO}cartpole:CARTPOLE_MDQN", "CartPole-v1 with Munchausen DQN"),
        "cartpole-pqn": (f"{_ZOO}cartpole:CARTPOLE_PQN", "CartPole-v1 with PQN"),
        "cartpole-novel-drqn": (
            f"{_ZOO}cartpole:CARTPOLE_NOVEL_DRQN",
            "CartPole without velocities, with DRQN (as r2d2)",
        ),
        "acrobot-qrdqn": (f"{_ZOO}acrobot:ACROBOT_QRDQN", "Acrobot-v1 with QR-DQN"),
        "cartpole-novel-ppo-lstm": (
            f"{_ZOO}cartpole:CARTPOLE_NOVEL_PPO_LSTM",
            "CartPole without velocities, with recurrent PPO",
        ),
        "acrobot-dqn": (f"{_ZOO}acrobot:ACROBOT_DQN", "Acrobot-v1 with DQN"),
        "pendulum-sac": (f"{_ZOO}pendulum:PENDULUM_SAC", "Pendulum-v1 with SAC"),
        "pendulum-ppo": (f"{_ZOO}pendulum:PENDULUM_PPO", "Pendulum-v1 with PPO"),
        "pendulum-td3": (f"{_ZOO}pendulum:PENDULUM_TD3", "Pendulum-v1 with TD3"),
        "pendulum-ddpg": (f"{_ZOO}pendulum:PENDULUM_DDPG", "Pendulum-v1 with DDPG"),
        "pendulum-tqc": (f"{_ZOO}pendulum:PENDULUM_TQC", "Pendulum-v1 with TQC"),
        "pendulum-redq": (f"{_ZOO}pendulum:PENDULUM_REDQ", "Pendulum-v1 with REDQ"),
        "pendulum-crossq": (f"{_ZOO}pendulum:PENDULUM_CROSSQ", "Pendulum-v1 with CrossQ"),
        "cartpole-sac-discrete": (f"{_ZOO}cartpole:CARTPOLE_SAC_DISCRETE", "CartPole-v1 with discrete SAC"),
        "mountaincar-continuous-sac": (
            f"{_ZOO}mountaincar:MOUNTAINCAR_CONTINUOUS_SAC",
            "MountainCarContinuous-v0 with SAC",
        ),
        "halfcheetah-sac": (f"{_ZOO}mujoco:HALFCHEETAH_SAC", "HalfCheetah-v5 (MuJoCo) with SAC"),
        "hopper-sac": (f"{_ZOO}mujoco:HOPPER_SAC", "Hopper-v5 (MuJoCo) with SAC"),
        "walker2d-sac": (f"{_ZOO}mujoco:WALKER2D_SAC", "Walker2d-v5 (MuJoCo) with SAC"),
        "ant-sac": (f"{_ZOO}mujoco:ANT_SAC", "Ant-v5 (MuJoCo) with SAC"),
        "walker2d-td3": (f"{_ZOO}mujoco:WALKER2D_TD3", "Walker2d-v5 (MuJoCo) with TD3"),
        "ant-td3": (f"{_ZOO}mujoco:ANT_TD3", "Ant-v5 (MuJoCo) with TD3"),
        "walker2d-ppo": (f"{_ZOO}mujoco:WALKER2D_PPO", "Walker2d-v5 (MuJoCo) with PPO"),
        "ant-ppo": (f"{_ZOO}mujoco:ANT_PPO", "Ant-v5 (MuJoCo) with PPO"),
        "halfcheetah-td3": (f"{_ZOO}mujoco:HALFCHEETAH_TD3", "HalfCheetah-v5 (MuJoCo) with TD3"),
        "hopper-td3": (f"{_ZOO}mujoco:HOPPER_TD3", "Hopper-v5 (MuJoCo) with TD3"),
        "halfcheetah-ppo": (f"{_ZOO}mujoco:HALFCHEETAH_PPO", "HalfCheetah-v5 (MuJoCo) with PPO"),
        "hopper-ppo": (f"{_ZOO}mujoco:HOPPER_PPO", "Hopper-v5 (MuJoCo) with PPO"),
        "spread-mappo": (f"{_ZOO}teams:SPREAD_MAPPO", "MPE simple_spread with MAPPO (marl)"),
        "credit-coma": (f"{_ZOO}teams:CREDIT_COMA", "credit to the right member with COMA"),
        "summing-maddpg": (f"{_ZOO}teams:SUMMING_MADDPG", "two vectors that must sum to a target with MADDPG"),
        "whisper-atoc": (f"{_ZOO}teams:WHISPER_ATOC", "one bit by communication with ATOC"),
        "whisper-collaq": (f"{_ZOO}teams:WHISPER_COLLAQ", "one bit by attention with CollaQ"),
        "two-step-qmix": (f"{_ZOO}teams:TWO_STEP_QMIX", "QMIX's two-step game with QMIX"),
        "two-step-vdn": (f"{_ZOO}teams:TWO_STEP_VDN", "QMIX's two-step game with VDN"),
        "climbing-qmix": (f"{_ZOO}teams:CLIMBING_QMIX", "the climbing game with QMIX"),
        "climbing-vdn": (f"{_ZOO}teams:CLIMBING_VDN", "the climbing game with VDN"),
        "penalty-qmix": (f"{_ZOO}teams:PENALTY_QMIX", "the penalty game with QMIX"),
        "penalty-vdn": (f"{_ZOO}teams:PENALTY_VDN", "the penalty game with VDN"),
        "spread-qmix": (f"{_ZOO}teams:SPREAD_QMIX", "MPE simple_spread with QMIX"),
        "spread-vdn": (f"{_ZOO}teams:SPREAD_VDN", "MPE simple_spread with VDN"),
        "lbf-qmix": (f"{_ZOO}teams:LBF_QMIX", "level-based foraging 8x8-2p-2f-coop with QMIX"),
        "lbf-vdn": (f"{_ZOO}teams:LBF_VDN", "level-based foraging 8x8-2p-2f-coop with VDN"),
        "rware-qmix": (f"{_ZOO}teams:RWARE_QMIX", "warehouse tiny-2ag with QMIX"),
        "rware-vdn": (f"{_ZOO}teams:RWARE_VDN", "warehouse tiny-2ag with VDN"),
        "traffic-dqn": (f"{_ZOO}traffic:TRAFFIC_DQN", "the lights of one crossing in SUMO with DQN"),
        "traffic-2x2-dqn": (f"{_ZOO}traffic:TRAFFIC_2X2_DQN", "four crossings in SUMO, one DQN for all of them"),
        "smax-3m-qmix": (f"{_ZOO}teams:SMAX_3M_QMIX", "three marines against three (SMAX) with QMIX"),
        "smax-3m-vdn": (f"{_ZOO}teams:SMAX_3M_VDN", "three marines against three (SMAX) with VDN"),
        "bitflip8-dqn-her": (f"{_ZOO}goals:BITFLIP8_DQN_HER", "8 bits to flip, with DQN and goals in hindsight"),
        "pong-ppo": (f"{_ZOO}atari:PONG_PPO", "Pong from pixels with PPO"),
        "pong-dqn": (f"{_ZOO}atari:PONG_DQN", "Pong from pixels with DQN"),
        "breakout-dqn": (f"{_ZOO}atari:BREAKOUT_DQN", "Breakout from pixels with DQN"),
        "breakout-ppo": (f"{_ZOO}atari:BREAKOUT_PPO", "Breakout from pixels with PPO"),
        "qbert-dqn": (f"{_ZOO}atari:QBERT_DQN", "Q*bert from pixels with DQN"),
        "qbert-ppo": (f"{_ZOO}atari:QBERT_PPO", "Q*bert from pixels with PPO"),
        "spaceinvaders-dqn": (f"{_ZOO}atari:SPACEINVADERS_DQN", "Space Invaders from pixels with DQN"),
        "spaceinvaders-ppo": (f"{_ZOO}atari:SPACEINVADERS_PPO", "Space Invaders from pixels with PPO"),
        "cartpole-a2c": (f"{_ZOO}cartpole:CARTPOLE_A2C", "CartPole-v1 with A2C"),
        "cartpole-impala": (f"{_ZOO}cartpole:CARTPOLE_IMPALA", "CartPole-v1 with IMPALA, asynchronously in processes"),
        "cartpole-appo": (f"{_ZOO}cartpole:CARTPOLE_APPO", "CartPole-v1 with APPO, asynchronously in processes"),
        "cartpole-apex": (
            f"{_ZOO}cartpole:CARTPOLE_APEX",
            "CartPole-v1 with DQN as Ape-X, asynchronously in processes",
        ),
        "cartpole-reinforce": (f"{_ZOO}cartpole:CARTPOLE_REINFORCE", "CartPole-v1 with REINFORCE"),
        "cartpole-trpo": (f"{_ZOO}cartpole:CARTPOLE_TRPO", "CartPole-v1 with TRPO"),
        "cartpole-ppg": (f"{_ZOO}cartpole:CARTPOLE_PPG", "CartPole-v1 with PPG"),
        "acrobot-ppo": (f"{_ZOO}acrobot:ACROBOT_PPO", "Acrobot-v1 with PPO"),
        "pendulum-a2c": (f"{_ZOO}pendulum:PENDULUM_A2C", "Pendulum-v1 with A2C"),
        "lunarlander-ppo": (f"{_ZOO}lunarlander:LUNARLANDER_PPO", "LunarLander-v3 with PPO"),
        "mountaincar-ppo": (f"{_ZOO}mountaincar:MOUNTAINCAR_PPO", "MountainCar-v0 with PPO and a bonus for novelty"),
        "chain20-ppo-rnd": (f"{_ZOO}chain:CHAIN20_PPO_RND", "a chain of 20 places with PPO and a bonus for novelty"),
    },
    "model": {
        "encoder": (f"{_NETS}encoders:Encoder", "features of any observation, built from its space"),
        "q-network": (f"{_NETS}heads:QNetwork", "encoder and one value per action, dueling as an option"),
        "actor-critic": (f"{_NETS}policy:ActorCritic", "policy and value, with encoders shared or apart"),
    },
    "wrapper": {
        "reward_clip": (f"{_WRAPPERS}RewardClip", "rewards limited to [low, high], or their sign"),
        "reward_scale": (f"{_WRAPPERS}RewardScale", "rewards times a factor"),
        "action_rescale": (f"{_WRAPPERS}ActionRescale", "Box actions in [-1, 1], whatever the env's bounds"),
        "time_awareness": (f"{_WRAPPERS}TimeAwareness", "the share of the time that is left, in the observation"),
        "previous_step": (f"{_WRAPPERS}PreviousStep", "the previous action and reward, in the observation"),
        "atari": (
            "rookery.envs.tasks.atari:Atari",
            "no-op starts, frame skip, grey 84 × 84 screens, FIRE where needed",
        ),
        "life_loss": ("rookery.envs.tasks.atari:LifeLoss", "every lost life of an Atari game ends an episode"),
        "time_limit": ("gymnasium.wrappers:TimeLimit", "truncates after max_episode_steps"),
    },
    "env": {  # those with several agents, and what needs an extra; other envs with one agent have gymnasium ids
        "rookery/TwoStep-v0": (f"{_MATRIX}TwoStep", "env.api=parallel: QMIX's game, optimum 8 behind a safe 7"),
        "rookery/Climbing-v0": (f"{_MATRIX}Climbing", "env.api=parallel: the best joint action lies beside the worst"),
        "rookery/Penalty-v0": (f"{_MATRIX}Penalty", "env.api=parallel: two best joint actions, and a price for a mix"),
        "rookery/Credit-v0": (f"{_TEAMS}Credit", "env.api=parallel: a probe, only one member's action counts"),
        "rookery/Whisper-v0": (f"{_TEAMS}Whisper", "env.api=parallel: a probe, one bit must be communicated"),
        "rookery/Summing-v0": (f"{_TEAMS}Summing", "env.api=parallel: a probe, two vectors must sum to a target"),
        "rookery/Crossing-v0": (f"{_TRAFFIC}Crossing", "a crossing with traffic lights in SUMO (traffic)"),
        "rookery/Crossings-v0": (f"{_TRAFFIC}Crossings", "env.api=parallel: crossings of a network in SUMO (traffic)"),
        "rookery/SMAX-v0": (f"{_TASKS}smax:SMAX", "env.api=parallel: battles of JaxMARL (smax)"),
        "rookery/StarCraft-v0": (f"{_TASKS}starcraft:StarCraft", "env.api=parallel: SMAC, if you have the game"),
        "rookery/Football-v0": (f"{_TASKS}football:Football", "env.api=parallel: gfootball, if you built it"),
        "rookery/Pairing-v0": (f"{_GAMES}Pairing", "env.api=parallel: two agents with different spaces cooperate"),
        "rookery/Verdicts-v0": (f"{_GAMES}Verdicts", "env.api=turns: rewards come in the opponent's turn"),
        "rookery/Visitors-v0": (f"{_GAMES}Visitors", "env.api=parallel: agents leave early and come late"),
        "rookery/Shifts-v0": (f"{_GAMES}Shifts", "env.api=dict: an agent acts only now and then"),
    },
    "sink": {
        "console": ("rookery.run.report.sinks.console:Console", "progress bar and a table on the terminal"),
        "csv": (f"{_SINKS}csvfile:CsvFile", "metrics.csv: one row per report"),
        "jsonl": (f"{_SINKS}jsonlines:JsonLines", "metrics.jsonl: one object per report"),
        "tensorboard": (f"{_SINKS}tensorboard:TensorBoard", "TensorBoard event files"),
    },
}
OTHER_NAMES: dict[str, dict[str, str]] = {  # kind → what people look for, in small letters and digits → what it is here
    "algo": {
        "her": "store.hindsight of an off-policy algorithm (docs/goals.md)",
        "rnd": "algo.curiosity.kind=rnd of an on-policy algorithm (docs/algorithms/curiosity.md)",
        "icm": "algo.curiosity.kind=icm of an on-policy algorithm (docs/algorithms/curiosity.md)",
        "drqn": "r2d2 with algo.burn_in=0 and algo.stored_state=false (preset cartpole-novel-drqn)",
        "apex": "dqn in an asynchronous pool (preset cartpole-apex)",
        "ddqn": "dqn with algo.double=true, as it is by default",
        "recurrentppo": "ppo with model.core (preset cartpole-novel-ppo-lstm)",
    },
}
_ROOMS: dict[
    tuple[str, str], str
] = {  # (old package, new package) → modules that moved, old=new where the name changed
    ("acting", "acting"): "quick=fast_forward judge=initial_priority",
    ("core", "core.batch"): "batch collate join leaf node",
    ("core", "core.config"): "config=check fields provenance=layers overrides schema section yamltext=yaml",
    ("core", "core.system"): "child cpus forkserver imports process sharing=shared_memory",
    ("core", "studies"): "statistics",
    ("data", "data.recorded"): "demonstrations packing=files experience=replay trace",
    (
        "data",
        "data.replay",
    ): "alarm changes=changed_pieces hindsight stored=leaf memory=memory_check priority=priorities "
    "prioritised reader ring scratch sequences replay=store",
    ("envs", "envs"): "replay=action_log settings=told_calls",
    ("envs", "envs.builders"): "engines groups buildmulti=multi build=single",
    ("envs", "envs.check"): "checker multicheck=multi trial",
    ("envs", "envs.engines"): "atarivector=atari_vector native_cartpole=cartpole pool=envpool gymvector=gym_vector "
    "inprocess native native_pendulum=pendulum",
    ("envs", "envs.multi"): "fronts=apis agents=engine multi=env table",
    ("envs", "envs.tasks"): "atari screens=atari_screen chains=chain games goals partial=no_velocity probes",
    ("envs", "envs.workers"): "asynchronous worker=child workers=parent process",
    ("learning", "learning"): "own_draws=module_rng words=update_words",
    ("learning", "learning.compiled"): "artefact build cache key product=matmul thin=small_matmul stack=stack_buffers",
    ("learning", "learning.group"): "ring=all_reduce member=follower leader",
    ("nets", "learning"): "chain=short_path",
    ("run", "doctor"): "doctor alone=env_timing remarks=machine_notes trial=measure places=placement "
    "candidates=suggestions",
    ("run", "run.callbacks"): "callbacks=base curriculum",
    ("run", "run.checkpoints"): "checkpoint=checkpoints durable linking=links manifest statefile",
    ("run", "run.collect"): "chunks collector seats",
    ("run", "run.config"): "owners=option_owners playerconfig=players resolve rules config=sections",
    ("run", "run.experiment"): "experiment folder logs origin=resume signals summary",
    (
        "run",
        "run.pools",
    ): "pool=local processpool=process line=protocol raypool=ray tidy=ray_cleanup remote station=worker",
    ("run", "run.report"): "clock meters progress sentinel",
    ("run", "run.report.sinks"): "console",
    ("run", "studies"): "curves plot seeds",
    ("run.sinks", "run.report.sinks"): "fanout jsonlines tensorboard values",
    ("zoo", "studies"): "gates verify",
}
MOVED: dict[str, str] = {  # module as configs of earlier versions name it → where it is now
    f"rookery.{old}.{name.partition('=')[0]}": f"rookery.{new}.{name.rpartition('=')[2]}"
    for (old, new), names in _ROOMS.items()
    for name in names.split()
}
