"""What other libraries call the keys of a config: for somebody who writes `learning_rate` or `total_timesteps`.

Names of Stable-Baselines3, RLlib, Tianshou, JoyRL, DI-engine and CleanRL. They are answered, not accepted: one name for
each thing, and a number may count something else here, which the key's own comment says. It stands alone so that the
table can be read, and grow, by itself.
"""

from __future__ import annotations

import difflib

from rookery.core.registry import nearest

_WORDS = {  # our key → theirs; the first key with a word that the algorithm has is meant
    "store.batch_size": "train_batch_size minibatch_size batchsize sample_batch_size",
    "store.min_fill": "learning_starts num_steps_sampled_before_learning_starts start_timesteps start_learning "
    "min_buffer_size prefill pre_fill",
    "algo.lr": "learning_rate actor_lr critic_lr lr_actor lr_critic pi_lr base_lr",
    "algo.gamma": "discount discount_factor gamma_",
    "algo.lam": "gae_lambda lambda lambda_ gae_lam lmbda td_lambda",
    "algo.n_step": "n_steps nstep estimation_step n_step_return multi_step lookahead",
    "algo.rollout": "n_steps num_steps rollout_fragment_length step_per_collect n_sample rollout_len rollout_length "
    "train_batch_size unroll_len horizon update_timestep train_batch_size_per_learner n_rollout_steps",
    "algo.epochs": "n_epochs num_sgd_iter num_epochs update_epochs k_epochs epoch_per_collect repeat_per_collect "
    "ppo_epochs noptepochs",
    "algo.minibatches": "batch_size sgd_minibatch_size minibatch_size num_minibatches nminibatches n_minibatches",
    "algo.clip": "clip_range clip_param eps_clip clip_ratio clip_coef ppo_clip cliprange",
    "algo.value_clip": "clip_range_vf vf_clip_param value_clip_range clip_vloss",
    "algo.value_cost": "vf_coef vf_loss_coeff value_weight value_coef value_loss_coef critic_loss_coef",
    "algo.entropy_bonus": "ent_coef entropy_coeff entropy_coef entropy_weight ent_weight entropy_cost entropy_beta",
    "algo.alpha": "ent_coef initial_alpha entropy_temperature",
    "algo.tune_alpha": "auto_alpha autotune automatic_entropy_tuning",
    "algo.target_kl": "kl_target kl_threshold",
    "algo.normalise_advantage": "normalize_advantage norm_adv advantage_normalization adv_norm",
    "algo.max_grad_norm": "grad_clip clip_grad_norm grad_norm grad_clip_norm gradient_clip clip_grad "
    "grad_norm_clipping",
    "algo.target_every": "target_update_interval target_network_update_freq target_update_freq target_update "
    "target_update_period target_network_frequency update_target_interval",
    "algo.tau": "polyak soft_update_tau target_theta soft_tau target_smoothing_coefficient",
    "algo.epsilon": "exploration_fraction exploration_final_eps exploration_initial_eps eps_train eps_start eps_end "
    "epsilon_start epsilon_end epsilon_decay epsilon_timesteps final_epsilon initial_epsilon eps_greedy start_e end_e",
    "algo.noise": "action_noise exploration_noise noise_sigma act_noise expl_noise",
    "algo.policy_every": "policy_delay actor_update_freq policy_frequency policy_freq update_actor_freq",
    "algo.smoothing": "target_policy_noise target_noise policy_noise",
    "algo.smoothing_clip": "target_noise_clip noise_clip",
    "algo.double": "double_q is_double double_dqn",
    "algo.dueling": "is_dueling",
    "algo.atoms": "num_atoms n_atoms n_atom",
    "algo.quantiles": "n_quantiles num_quantiles",
    "algo.shared": "share_network share_encoder vf_share_layers",
    "algo.warmup": "learning_starts start_timesteps start_steps random_collect_size",
    "store.capacity": "buffer_size replay_buffer_size replay_capacity memory_capacity memory_size total_size "
    "buffer_capacity max_buffer_size",
    "store.updates_per_step": "train_freq gradient_steps update_per_step update_per_collect training_intensity "
    "utd utd_ratio train_frequency",
    "store.priority": "prioritized_replay use_per prioritized per",
    "store.priority.alpha": "prioritized_replay_alpha per_alpha",
    "store.priority.beta": "prioritized_replay_beta per_beta beta0",
    "model.hidden": "net_arch hidden_sizes fcnet_hiddens hidden_dim hidden_size hidden_layers encoder_hidden_size_list",
    "model.activation": "activation_fn fcnet_activation activation_function",
    "model.convs": "conv_filters cnn_filters",
    "model.core": "use_lstm lstm lstm_cell_size lstm_hidden_size n_lstm_layers recurrent rnn_hidden_size",
    "model.normalise_obs": "norm_obs normalize_obs normalize observation_filter normalize_observations obs_norm",
    "env.id": "env_name env_id environment game task gym_id",
    "env.num": "n_envs num_envs num_envs_per_worker num_envs_per_env_runner training_num train_num collector_env_num "
    "env_num n_env",
    "env.stack": "frame_stack n_stack stack_num framestack num_stack frames_stack",
    "env.max_episode_steps": "max_ep_len max_episode_length episode_length time_limit",
    "env.kwargs": "env_kwargs env_config",
    "pool.workers": "num_workers num_env_runners num_rollout_workers n_workers num_actors actor_num num_collectors",
    "pool.gpus": "num_gpus_per_worker num_gpus_per_env_runner",
    "pool.cpus": "num_cpus_per_worker num_cpus_per_env_runner",
    "learning.learners": "num_learners num_learner_workers",
    "train.max_steps": "total_timesteps total_steps timesteps timesteps_total max_env_steps max_env_step "
    "num_env_steps num_timesteps max_timesteps num_env_steps_sampled_lifetime total_env_steps",
    "train.max_updates": "max_train_iter max_iterations training_iteration num_iterations gradient_updates n_updates",
    "train.max_episodes": "train_eps max_epoch n_episodes num_episodes episodes_total total_episodes",
    "train.max_seconds": "time_total_s max_time",
    "train.stop": "stop_value reward_threshold episode_reward_mean stop_fn target_return solved_reward",
    "eval.every_steps": "eval_freq evaluation_interval eval_interval eval_per_episode test_interval eval_freq_steps",
    "eval.episodes": "n_eval_episodes evaluation_duration episode_per_test n_evaluator_episode eval_eps "
    "eval_episodes evaluation_num_episodes",
    "eval.num": "test_num evaluator_env_num n_eval_envs evaluation_num_workers evaluation_num_env_runners",
    "checkpoint.every_steps": "save_freq checkpoint_freq checkpoint_frequency save_interval model_save_fre",
    "checkpoint.keep": "num_to_keep keep_checkpoints_num",
    "log.every_steps": "log_interval log_freq print_freq min_sample_timesteps_per_iteration",
    "log.level": "verbose log_level debug",
    "log.window": "stats_window_size metrics_num_episodes_for_smoothing",
    "run.seed": "random_seed rng_seed",
    "run.device": "cuda use_gpu num_gpus use_cuda num_gpus_per_learner gpu",
    "run.out": "tensorboard_log logdir log_dir local_dir storage_path save_path output_dir exp_dir",
    "run.name": "exp_name run_name tb_log_name experiment_name",
    "run.threads": "num_threads torch_threads",
    "learning.mode": "compile torch_compile",
}
_KEYS: dict[str, list[str]] = {}
for _key, _theirs in _WORDS.items():
    for _word in _theirs.split():
        _KEYS.setdefault(_word, []).append(_key)


def keys_for(word: str) -> tuple[str, ...]:
    """Our keys for a word of other libraries, the likeliest first; none if nobody uses it."""
    return tuple(_KEYS.get(word.lower().replace("-", "_"), ()))


def nearly(word: str) -> str:
    """The word of other libraries that this one was probably meant to be; empty if none is close."""
    close = nearest(word.lower().replace("-", "_"), _KEYS)
    return close[0] if close and difflib.SequenceMatcher(None, word.lower(), close[0]).ratio() >= 0.8 else ""
