"""The names that Rookery itself brings: strings only, so that listing them imports nothing. `registry` is the way to them."""

from __future__ import annotations

_ALGOS = "rookery.algos."
_ZOO = "rookery.zoo.classic:"
_VALUES = "rookery.zoo.values:"
_GOALS = "rookery.zoo.goals:"
_ATARI = "rookery.zoo.atari:"
_GRADIENTS = "rookery.zoo.gradients:"
_POOLS = "rookery.zoo.pools:"
_CONTINUOUS = "rookery.zoo.continuous:"
_MUJOCO = "rookery.zoo.mujoco:"
_WRAPPERS = "rookery.envs.wrappers:"
_NETS = "rookery.nets."
_SINKS = "rookery.run.report.sinks."
BUILTIN: dict[str, dict[str, tuple[str, str]]] = {  # kind → name → (target, summary)
    "algo": {
        "dqn": (f"{_ALGOS}dqn:DQN", "deep Q-learning: double, dueling and n-step as options"),
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
        "cartpole-dqn": (f"{_ZOO}CARTPOLE_DQN", "CartPole-v1 with DQN"),
        "cartpole-dqn-per": (f"{_ZOO}CARTPOLE_DQN_PER", "CartPole-v1 with DQN and prioritised replay"),
        "cartpole-ppo": (f"{_ZOO}CARTPOLE_PPO", "CartPole-v1 with PPO"),
        "cartpole-novel-r2d2": (f"{_ZOO}CARTPOLE_NOVEL_R2D2", "CartPole without velocities, with R2D2"),
        "cartpole-c51": (f"{_VALUES}CARTPOLE_C51", "CartPole-v1 with C51"),
        "cartpole-rainbow": (f"{_VALUES}CARTPOLE_RAINBOW", "CartPole-v1 with Rainbow"),
        "cartpole-qrdqn": (f"{_VALUES}CARTPOLE_QRDQN", "CartPole-v1 with QR-DQN"),
        "cartpole-iqn": (f"{_VALUES}CARTPOLE_IQN", "CartPole-v1 with IQN"),
        "cartpole-fqf": (f"{_VALUES}CARTPOLE_FQF", "CartPole-v1 with FQF"),
        "cartpole-mdqn": (f"{_VALUES}CARTPOLE_MDQN", "CartPole-v1 with Munchausen DQN"),
        "cartpole-pqn": (f"{_VALUES}CARTPOLE_PQN", "CartPole-v1 with PQN"),
        "cartpole-novel-drqn": (f"{_VALUES}CARTPOLE_NOVEL_DRQN", "CartPole without velocities, with DRQN (as r2d2)"),
        "acrobot-qrdqn": (f"{_VALUES}ACROBOT_QRDQN", "Acrobot-v1 with QR-DQN"),
        "cartpole-novel-ppo-lstm": (
            f"{_ZOO}CARTPOLE_NOVEL_PPO_LSTM",
            "CartPole without velocities, with recurrent PPO",
        ),
        "acrobot-dqn": (f"{_ZOO}ACROBOT_DQN", "Acrobot-v1 with DQN"),
        "pendulum-sac": (f"{_ZOO}PENDULUM_SAC", "Pendulum-v1 with SAC"),
        "pendulum-ppo": (f"{_ZOO}PENDULUM_PPO", "Pendulum-v1 with PPO"),
        "pendulum-td3": (f"{_CONTINUOUS}PENDULUM_TD3", "Pendulum-v1 with TD3"),
        "pendulum-ddpg": (f"{_CONTINUOUS}PENDULUM_DDPG", "Pendulum-v1 with DDPG"),
        "pendulum-tqc": (f"{_CONTINUOUS}PENDULUM_TQC", "Pendulum-v1 with TQC"),
        "pendulum-redq": (f"{_CONTINUOUS}PENDULUM_REDQ", "Pendulum-v1 with REDQ"),
        "pendulum-crossq": (f"{_CONTINUOUS}PENDULUM_CROSSQ", "Pendulum-v1 with CrossQ"),
        "cartpole-sac-discrete": (f"{_CONTINUOUS}CARTPOLE_SAC_DISCRETE", "CartPole-v1 with discrete SAC"),
        "mountaincar-continuous-sac": (f"{_CONTINUOUS}MOUNTAINCAR_CONTINUOUS_SAC", "MountainCarContinuous-v0 with SAC"),
        "halfcheetah-sac": (f"{_MUJOCO}HALFCHEETAH_SAC", "HalfCheetah-v5 (MuJoCo) with SAC"),
        "hopper-sac": (f"{_MUJOCO}HOPPER_SAC", "Hopper-v5 (MuJoCo) with SAC"),
        "walker2d-sac": (f"{_MUJOCO}WALKER2D_SAC", "Walker2d-v5 (MuJoCo) with SAC"),
        "ant-sac": (f"{_MUJOCO}ANT_SAC", "Ant-v5 (MuJoCo) with SAC"),
        "walker2d-td3": (f"{_MUJOCO}WALKER2D_TD3", "Walker2d-v5 (MuJoCo) with TD3"),
        "ant-td3": (f"{_MUJOCO}ANT_TD3", "Ant-v5 (MuJoCo) with TD3"),
        "walker2d-ppo": (f"{_MUJOCO}WALKER2D_PPO", "Walker2d-v5 (MuJoCo) with PPO"),
        "ant-ppo": (f"{_MUJOCO}ANT_PPO", "Ant-v5 (MuJoCo) with PPO"),
        "halfcheetah-td3": (f"{_MUJOCO}HALFCHEETAH_TD3", "HalfCheetah-v5 (MuJoCo) with TD3"),
        "hopper-td3": (f"{_MUJOCO}HOPPER_TD3", "Hopper-v5 (MuJoCo) with TD3"),
        "halfcheetah-ppo": (f"{_MUJOCO}HALFCHEETAH_PPO", "HalfCheetah-v5 (MuJoCo) with PPO"),
        "hopper-ppo": (f"{_MUJOCO}HOPPER_PPO", "Hopper-v5 (MuJoCo) with PPO"),
        "bitflip8-dqn-her": (f"{_GOALS}BITFLIP8_DQN_HER", "8 bits to flip, with DQN and goals in hindsight"),
        "pong-ppo": (f"{_ATARI}PONG_PPO", "Pong from pixels with PPO"),
        "pong-dqn": (f"{_ATARI}PONG_DQN", "Pong from pixels with DQN"),
        "breakout-dqn": (f"{_ATARI}BREAKOUT_DQN", "Breakout from pixels with DQN"),
        "breakout-ppo": (f"{_ATARI}BREAKOUT_PPO", "Breakout from pixels with PPO"),
        "qbert-dqn": (f"{_ATARI}QBERT_DQN", "Q*bert from pixels with DQN"),
        "qbert-ppo": (f"{_ATARI}QBERT_PPO", "Q*bert from pixels with PPO"),
        "spaceinvaders-dqn": (f"{_ATARI}SPACEINVADERS_DQN", "Space Invaders from pixels with DQN"),
        "spaceinvaders-ppo": (f"{_ATARI}SPACEINVADERS_PPO", "Space Invaders from pixels with PPO"),
        "cartpole-a2c": (f"{_GRADIENTS}CARTPOLE_A2C", "CartPole-v1 with A2C"),
        "cartpole-impala": (f"{_POOLS}CARTPOLE_IMPALA", "CartPole-v1 with IMPALA, asynchronously in processes"),
        "cartpole-appo": (f"{_POOLS}CARTPOLE_APPO", "CartPole-v1 with APPO, asynchronously in processes"),
        "cartpole-apex": (f"{_POOLS}CARTPOLE_APEX", "CartPole-v1 with DQN as Ape-X, asynchronously in processes"),
        "cartpole-reinforce": (f"{_GRADIENTS}CARTPOLE_REINFORCE", "CartPole-v1 with REINFORCE"),
        "cartpole-trpo": (f"{_GRADIENTS}CARTPOLE_TRPO", "CartPole-v1 with TRPO"),
        "cartpole-ppg": (f"{_GRADIENTS}CARTPOLE_PPG", "CartPole-v1 with PPG"),
        "acrobot-ppo": (f"{_GRADIENTS}ACROBOT_PPO", "Acrobot-v1 with PPO"),
        "pendulum-a2c": (f"{_GRADIENTS}PENDULUM_A2C", "Pendulum-v1 with A2C"),
        "lunarlander-ppo": (f"{_GRADIENTS}LUNARLANDER_PPO", "LunarLander-v3 with PPO"),
        "mountaincar-ppo": (f"{_GRADIENTS}MOUNTAINCAR_PPO", "MountainCar-v0 with PPO and a bonus for novelty"),
        "chain20-ppo-rnd": (f"{_GRADIENTS}CHAIN20_PPO_RND", "a chain of 20 places with PPO and a bonus for novelty"),
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
    "sink": {
        "console": ("rookery.run.report.sinks.console:Console", "progress bar and a table on the terminal"),
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
