"""The exercises of each page of the book: what a notebook of it is asked, whatever it has kept."""

# page -> label of an exercise -> its check, "" where the answer is for a reader to judge
PAGES: dict[str, dict[str, str]] = {
    "motivation": {
        "ex-motivation-rate": "motivation.check_learning_rate",
        "ex-motivation-measure": "motivation.check_shift_measure",
        "ex-motivation-dependent": "motivation.check_correlation_of_normalized",
    },
    "motivation_further": {
        "ex-motivation-shift": "motivation.check_kind_of_shift",
        "ex-motivation-zca": "motivation.check_zca",
        "ex-motivation-newton": "motivation.check_inverse_root",
    },
    "batch_norm": {
        "ex-bn-restore": "batch_norm.check_restoring_parameters",
        "ex-bn-running": "batch_norm.check_running_statistics",
        "ex-bn-gradient": "batch_norm.check_input_gradient",
    },
    "batch_norm_further": {
        "ex-bn-images": "batch_norm.check_channel_norm",
        "ex-bn-folding": "batch_norm.check_folding",
    },
    "layer_norm": {
        "ex-ln-layer": "layer_norm.check_layer_norm",
        "ex-ln-gradient": "layer_norm.check_input_gradient",
        "ex-ln-centering": "layer_norm.check_centering_weights",
    },
    "layer_norm_further": {
        "ex-ln-count": "layer_norm.check_count_means",
        "ex-ln-rank": "layer_norm.check_jacobian_rank",
        "ex-ln-telltale": "layer_norm.check_telltale_row",
    },
    "invariance": {
        "ex-inv-composition": "invariance.check_composition",
        "ex-inv-conserved": "invariance.check_conserved",
        "ex-inv-balance": "invariance.check_equilibrium",
    },
    "invariance_further": {
        "ex-inv-eps": "invariance.check_equivalent_eps",
        "ex-inv-signs": "invariance.check_negative_scale",
        "ex-inv-rates": "invariance.check_growing_rates",
    },
    "rms_norm": {
        "ex-rms-layer": "rms_norm.check_rms_norm",
        "ex-rms-gradient": "rms_norm.check_rms_gradient",
        "ex-rms-half": "rms_norm.check_half_precision",
    },
    "rms_norm_further": {
        "ex-rms-rank": "rms_norm.check_jacobian_rank",
        "ex-rms-fold": "rms_norm.check_fold_into_linear",
    },
    "deep_norm": {
        "ex-dn-block": "deep_norm.check_block",
        "ex-dn-init": "deep_norm.check_gains",
        "ex-dn-sublayers": "deep_norm.check_sublayers",
    },
    "deep_norm_further": {
        "ex-dn-constants": "deep_norm.check_constants",
        "ex-dn-growth": "deep_norm.check_growth_exponent",
    },
    "warmup": {
        "ex-warmup-factor": "warmup.check_warmup_factor",
        "ex-warmup-plateau": "warmup.check_plateau",
        "ex-warmup-adam": "warmup.check_first_adam_step",
    },
    "warmup_further": {
        "ex-warmup-noam": "warmup.check_transformer_rate",
        "ex-warmup-variance": "warmup.check_token_variance",
        "ex-warmup-stable": "warmup.check_stable_rate",
    },
    "pytorch_source": {
        "ex-source-function": "pytorch_source.check_cpu_function",
        "ex-source-rms": "pytorch_source.check_rms_coefficients",
        "ex-source-buffers": "pytorch_source.check_bias_gradient",
    },
    "pytorch_source_further": {
        "ex-source-way": "pytorch_source.check_way_to_variance",
        "ex-source-lanes": "pytorch_source.check_lane_sum",
        "ex-source-one-pass": "pytorch_source.check_one_pass_variance",
    },
    "fast_norms": {
        "ex-fast-norms-row": "fast_norms.check_row",
        "ex-fast-norms-bytes": "fast_norms.check_bytes_moved",
        "ex-fast-norms-sum": "fast_norms.check_sum_in_blocks",
    },
    "numerics": {
        "ex-num-variance": "numerics.check_variance",
        "ex-num-half": "numerics.check_half_size",
        "ex-num-port": "numerics.check_porting",
    },
    "numerics_further": {
        "ex-num-mask": "numerics.check_masked_moments",
        "ex-num-fold": "numerics.check_conv_folding",
    },
    "checks": {
        "ex-checks-killer": "checks.check_killer",
        "ex-checks-suite": "checks.check_suite",
        "ex-checks-boxes": "checks.check_black_boxes",
    },
    "checks_further": {
        "ex-checks-gradcheck": "checks.check_gradcheck",
        "ex-checks-suspects": "checks.check_suspects",
        "ex-checks-dialect": "checks.check_declaration",
        "ex-checks-own": "",
    },
    "bn_vs_ln": {
        "ex-bvl-stored": "bn_vs_ln.check_stored_numbers",
        "ex-bvl-transpose": "bn_vs_ln.check_batch_norm_by_layer_norm",
        "ex-bvl-tokens": "bn_vs_ln.check_token_batch_norm",
    },
    "paper_experiments": {
        "ex-paper-lstm": "paper_experiments.check_lstm_sums",
        "ex-paper-length": "paper_experiments.check_sees_length",
        "ex-paper-speedup": "paper_experiments.check_speedup",
    },
    "paper_experiments_further": {
        "ex-paper-batch-norm": "paper_experiments.check_uses_batch_norm",
        "ex-paper-nats": "paper_experiments.check_probability_ratio",
        "ex-paper-units": "paper_experiments.check_loss_in_other_units",
    },
    "many_devices": {
        "ex-many-devices-merge": "many_devices.check_merge",
        "ex-many-devices-gradient": "many_devices.check_sync_gradient",
        "ex-many-devices-reduction": "many_devices.check_reduction",
    },
    "many_devices_further": {
        "ex-many-devices-momentum": "many_devices.check_equivalent_momentum",
        "ex-many-devices-sent": "many_devices.check_numbers_sent",
    },
    "debugging": {
        "ex-debug-diagnosis": "debugging.check_diagnosis",
        "ex-debug-epoch": "debugging.check_start_epoch",
        "ex-debug-groups": "debugging.check_decay_groups",
    },
    "interview": {
        "ex-interview-pair": "interview.check_layer_norm_pair",
        "ex-interview-batch": "interview.check_batch_norm",
        "ex-interview-rms": "interview.check_rms_norm",
        "ex-interview-hand": "variants.check_by_hand",
        "ex-interview-diagnosis": "variants.check_diagnosis",
        "ex-interview-constants": "variants.check_constants",
    },
    "family": {
        "ex-family-length": "family.check_rms_weight",
        "ex-family-renorm": "family.check_batch_renorm",
        "ex-family-contrast": "family.check_global_response",
    },
    "today": {
        "ex-today-sharpest": "today.check_largest_weight",
        "ex-today-sandwich": "today.check_sandwich",
        "ex-today-stream": "today.check_stream",
    },
}
