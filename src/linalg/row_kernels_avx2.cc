// The row kernels for AVX2; compiled with its flags (CMakeLists.txt), called only where it
// exists.
#define BATON_ROW_KERNELS kRowKernelsAvx2
#include "linalg/row_kernels.inc"
