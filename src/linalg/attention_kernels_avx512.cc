// The attention kernels for AVX-512; compiled with its flags (CMakeLists.txt), called only where it
// exists. 6 × 4 sums, 4 columns and a factor fill 29 of the 32 registers.
#define BATON_ATTENTION_KERNELS kAttentionKernelsAvx512
#define BATON_BLOCK_ROWS 6
#define BATON_BLOCK_VECTORS 4
#include "linalg/attention_kernels.inc"
