"""Constants of the memory model: what no shape tells, each with its source or how it was fitted."""

GIB = 2**30

FP32_BYTES = 4.0

FP8_COPY_BYTES = 1.0
"""Of a weight, kept in 8 bits for the products beside the 16-bit one."""

GROUP_BYTES = 2.3e9
"""Buffers of NCCL for the groups of one axis of the mesh, which no allocator counts. Fitted."""

WORKSPACE_BYTES = 0.1e9
"""cuBLAS and attention workspaces, random state, token and mask buffers, which the allocator holds.

cuBLAS takes 32 MiB a handle on Hopper and 8 MiB before (NVIDIA, cuBLAS, ``cublasSetWorkspace``).
"""

FRAGMENTED_SHARE = 0.06
"""Of activations and temporaries, memory that the allocator reserved and could not hand out."""

GATHERED_LAYERS = 2.0
"""Layers gathered at once under ZeRO-3: the one at work and the one fetched ahead of it."""

OFFLOADED_LAYERS = 2.0
"""Layers of activations on the device when the others wait in the host's memory."""

BUCKET_PARAMETERS = 5e8
"""Most parameters of one bucket of gradients (DeepSpeed's ``reduce_bucket_size``)."""

EXPERT_IMBALANCE = 1.0
"""Tokens of the busiest rank's experts over an even share."""
