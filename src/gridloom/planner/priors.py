"""What is known of each constant before a run is measured: a value, and how far off it may be."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Prior:
    """A constant before it is fitted.

    Attributes:
        value: What literature or the hardware suggest.
        spread: Standard deviation of its logarithm.
        most: It cannot be more than this; 0 for no bound.
        family_spread: Standard deviation of the logarithm of what one family of accelerators
            reaches beside all; 0 when families share it.
    """

    value: float
    spread: float
    most: float = 0.0
    family_spread: float = 0.0


PRIORS: dict[str, Prior] = {
    # Shares of peak: what matrix multiplication reaches at its best shape (MAMF tables of
    # stas00/ml-engineering: 0.87 on A100, 0.80 on H100), less what a device at full power loses.
    "matrix_share": Prior(0.82, 0.1, 0.95, 0.12),
    "matrix_share_8": Prior(0.72, 0.15, 0.9, 0.12),
    "depth_half": Prior(60.0, 0.7),
    "middle_tile_share": Prior(0.92, 0.05, 1.0),
    "small_tile_share": Prior(0.78, 0.08, 0.95),
    # NVIDIA, Matrix multiplication background: dimensions want multiples of 64, at least of 8; a
    # product that cannot use tensor cores runs at a sixteenth of their rate on an A100.
    "unaligned_64_share": Prior(0.8, 0.2, 1.0),
    "unaligned_8_share": Prior(0.06, 0.5),
    "row_scale_share": Prior(0.6, 0.3, 1.0),
    "expert_imbalance": Prior(1.1, 0.1),
    "permute_passes": Prior(10.0, 0.5),
    # Dao, 2023 and Shah et al., 2024: FlashAttention-2 and -3, forward and backward, by head size.
    "attention_share": Prior(0.45, 0.05, 0.68, 0.08),
    "attention_backward": Prior(1.25, 0.05),
    "older_attention_share": Prior(0.5, 0.2, 1.0),
    "small_head": Prior(0.15, 0.15),
    "hbm_share": Prior(0.85, 0.1, 1.0, 0.1),
    "hidden_passes": Prior(12.0, 0.3),
    "ffn_passes": Prior(3.0, 0.4),
    "score_passes": Prior(5.0, 0.4),
    "cast_passes": Prior(3.0, 0.4),
    "logit_passes": Prior(8.0, 0.4),
    # The tables above: 0.87 and 0.80 of the peak at the best shape, beside what layers reach.
    "logit_gain": Prior(1.1, 0.1, 1.25),
    "backward_passes": Prior(1.8, 0.2),
    "unfused_passes": Prior(1.3, 0.2),
    "unfused_kernels": Prior(1.5, 0.2),
    "kernel_s": Prior(4e-6, 0.4),
    "launch_s": Prior(8e-6, 0.3),
    "blocking_s": Prior(60e-6, 0.8),
    "expert_kernels": Prior(120.0, 0.3),
    "recompute_share": Prior(0.9, 0.08, 1.0),
    # nccl-tests: bus bandwidth of large messages over the link's rate.
    "scaleup_share": Prior(0.75, 0.2, 1.0),
    "network_share": Prior(0.7, 0.3, 1.0),
    "all_to_all_share": Prior(0.8, 0.2, 0.95),
    "scaleup_latency_s": Prior(4e-6, 0.5),
    "network_latency_s": Prior(15e-6, 0.5),
    "ring_latency_s": Prior(2e-6, 0.6),
    "tensor_latency_s": Prior(9e-6, 0.4),
    "tensor_hidden": Prior(0.5, 0.3, 1.0),
    "data_hidden": Prior(0.8, 0.2, 1.0),
    "data_interference": Prior(0.3, 0.4, 0.5),
    "pipeline_exposed": Prior(0.5, 0.4, 1.0),
    "accumulate_passes": Prior(1.0, 0.2),
    "update_passes": Prior(0.9, 0.15),
    "step_fixed_s": Prior(0.01, 0.3),
    "jitter": Prior(0.005, 0.7),
}
"""Every constant of `Constants` but those that nothing measured tells apart."""
