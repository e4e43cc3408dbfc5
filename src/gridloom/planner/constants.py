"""The physical constants of the cost model: what devices and networks reach of their limits."""

from dataclasses import dataclass

from gridloom.planner.cases import Column


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Shares of peak rates, latencies and what overlap hides; numbers, or one entry a case."""

    matrix_share: Column = 0.75
    """Of the peak matrix rate, that large 16-bit products reach."""
    matrix_share_8: Column = 0.65
    """The same for 8-bit products."""
    depth_half: Column = 100.0
    """Depth ``k`` of a product at which it reaches half of that."""
    middle_tile_share: Column = 0.92
    """Of the rate with 128 x 256 tiles, that 128 x 128 tiles reach."""
    small_tile_share: Column = 0.8
    """The same for 64 x 128 tiles."""
    unaligned_64_share: Column = 0.8
    """Left when a dimension is no multiple of 64."""
    unaligned_8_share: Column = 0.4
    """Left when a dimension is no multiple of 8."""
    row_scale_share: Column = 0.7
    """Of the 8-bit rate, when operands have a scale for each row."""
    expert_imbalance: Column = 1.1
    """Time of the experts' products beside that of perfectly even ones."""
    permute_passes: Column = 4.0
    """Times that routed tokens are read or written to sort them by expert and back."""
    small_head: Column = 0.3
    """Slowdown of fused attention for each halving of the head size below 128."""
    unfused_passes: Column = 1.6
    """Element-wise traffic when kernels are not fused."""
    unfused_kernels: Column = 1.5
    """Kernels of a layer when they are not fused."""
    older_attention_share: Column = 0.7
    """Of that rate, that a kernel written for the generation before reaches."""
    tensor_latency_s: Column = 10e-6
    """Of one step around a ring that gathers or reduces parameter by parameter."""
    ring_latency_s: Column = 3e-6
    """Of one step around a ring that gathers or reduces a layer."""
    expert_kernels: Column = 60.0
    """Kernels that experts add to a layer's forward."""
    recompute_share: Column = 0.95
    """Of a forward, that computing a layer again takes."""
    attention_share: Column = 0.5
    """Of the 16-bit peak, that fused attention reaches in the forward, at head size 128."""
    attention_backward: Column = 1.4
    """How much slower than in the forward fused attention's backward is, flop for flop."""
    hbm_share: Column = 0.8
    """Of the memory bandwidth, that element-wise kernels reach."""
    hidden_passes: Column = 16.0
    """Times that a layer's forward reads or writes a tensor as wide as the residual stream."""
    ffn_passes: Column = 4.0
    """Times that it reads or writes one as wide as the feed-forward layer's output."""
    score_passes: Column = 6.0
    """Times that attention without a fused kernel reads or writes its matrix of scores."""
    cast_passes: Column = 3.0
    """Times that 8-bit training reads or writes each operand to scale and cast it."""
    logit_passes: Column = 10.0
    """Times that the loss reads or writes the logits, forward and backward, in 16-bit words."""
    logit_gain: Column = 1.0
    """Rate of the output layer's product beside that of a layer's: it is one large one."""
    backward_passes: Column = 2.0
    """Element-wise traffic of the backward beside the forward's."""
    kernel_s: Column = 5e-6
    """Start of one kernel on the device."""
    launch_s: Column = 10e-6
    """What the host needs to launch one kernel: a floor when kernels are short."""
    blocking_s: Column = 60e-6
    """What a kernel costs on top of its time when the host waits for it."""
    layer_kernels: Column = 20.0
    """Kernels of a layer's forward."""
    scaleup_share: Column = 0.75
    """Of the scale-up bandwidth, that collectives reach."""
    network_share: Column = 0.7
    """Of the network's bandwidth, that collectives reach."""
    all_to_all_share: Column = 0.5
    """Of the bandwidth, that all-to-all reaches."""
    scaleup_latency_s: Column = 5e-6
    """Of one step of a collective inside a scale-up domain."""
    network_latency_s: Column = 15e-6
    """Of one step of a collective between domains."""
    tensor_hidden: Column = 0.5
    """Share of tensor-parallel collectives that runs behind the products, when overlapped."""
    data_hidden: Column = 0.8
    """Share of the compute beside it, behind which gradient and parameter traffic can hide."""
    data_interference: Column = 0.1
    """Share of hidden traffic that is paid all the same: it slows the kernels beside it."""
    pipeline_exposed: Column = 0.5
    """Share of the traffic between pipeline stages that is not hidden."""
    accumulate_passes: Column = 1.0
    """Of reading and writing a rank's fp32 gradients, once a micro-batch."""
    update_passes: Column = 1.5
    """Times that the optimizer reads or writes its state."""
    step_fixed_s: Column = 0.02
    """Of a training step, whatever it trains."""
    jitter: Column = 0.005
    """Relative slowdown for each doubling of the nodes that must wait for each other."""
