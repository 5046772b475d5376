// The attention kernels for any CPU. A small register block: the baseline has 16 registers of 4
// lanes.
#define BATON_ATTENTION_KERNELS kAttentionKernelsPortable
#define BATON_BLOCK_ROWS 2
#define BATON_BLOCK_VECTORS 1
#include "linalg/attention_kernels.inc"
