"""Constants of the memory model: what no shape tells, each with its source or how it was fitted."""

FP32_BYTES = 4.0

FP8_COPY_BYTES = 1.0
"""Of a weight, kept in 8 bits for the products beside the 16-bit one (Transformer Engine).

Two copies where both directions are cached, none where the parameters themselves are 8 bits: the
published peaks lie between (MS-AMP's figure: 1.1 to 1.3 bytes a parameter above bf16, less what
narrower operands save).
"""

CONTEXT_BYTES = 1e9
"""Context of the runtime and its loaded kernels: 0.5 to 1.5 GB on A100 and H100, by version."""

GROUP_BYTES = 2.3e9
"""Buffers of the communication library for the groups of one axis of the mesh.

Fitted, with the context, to the 44 readings of ``nvidia-smi`` in bigscience's chronicles of 2022:
Megatron-DeepSpeed with some ten NCCL communicators, each with buffers of 4 MiB both ways a channel
and a peer (``NCCL_BUFFSIZE``). Programs of one axis, and newer libraries, need less.
"""

WORKSPACE_BYTES = 0.1e9
"""cuBLAS and attention workspaces, random state, token and mask buffers, which the allocator holds.

cuBLAS takes 32 MiB a handle on Hopper and 8 MiB before (NVIDIA, cuBLAS, ``cublasSetWorkspace``);
the rest is what the small models of Megatron-LM's own tests hold beyond their tensors.
"""

FRAGMENTED_SHARE = 0.06
"""Of activations and temporaries: what the allocator reserved and could not hand out.

Fitted to the reserved bytes that torchtitan printed (2024-12); its states come in few large blocks.
"""

GATHERED_LAYERS = 2.0
"""Layers gathered at once under ZeRO-3: the one at work and the one fetched ahead of it."""

OFFLOADED_LAYERS = 2.0
"""Layers of activations on the device when the others wait in the host's memory."""

BUCKET_PARAMETERS = 5e8
"""Most parameters of one bucket of gradients (DeepSpeed's ``reduce_bucket_size``)."""

EXPERT_IMBALANCE = 1.0
"""Tokens of the busiest rank's experts over an even share."""
