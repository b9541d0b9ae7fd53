"""The experiments that come with heedful: their names, and the modules that define them."""

EXPERIMENTS = {
    "X1": "x1_fixed_vector",
    "X2": "x2_last_state",
    "X3": "x3_speed",
    "X4": "x4_equal_time",
    "X5": "x5_clipping",
    "X6": "x6_beam_curve",
    "X7": "x7_repetition",
    "X8": "x8_heads_and_positions",
    "X9": "x9_cost_of_length",
    "X10": "x10_causal_mask",
    "X11": "x11_label_smoothing",
    "X12": "x12_reset_gate",
    "X13": "x13_similar_contexts",
    "X14": "x14_soft_and_sampled",
    "X15": "x15_attention_as_evidence",
    "X16": "x16_subword_size",
}
