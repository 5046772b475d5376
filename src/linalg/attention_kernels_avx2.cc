// The attention kernels for AVX2; compiled with its flags (CMakeLists.txt), called only
// where it exists. 6 × 1 sums of two registers, 2 columns and a factor fill 15 of the 16 registers.
#define BATON_ATTENTION_KERNELS kAttentionKernelsAvx2
#define BATON_BLOCK_ROWS 6
#define BATON_BLOCK_VECTORS 1
#include "linalg/attention_kernels.inc"
