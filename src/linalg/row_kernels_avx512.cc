// The row kernels for AVX-512; compiled with its flags (CMakeLists.txt), called only where it
// exists.
#define BATON_ROW_KERNELS kRowKernelsAvx512
#include "linalg/row_kernels.inc"
