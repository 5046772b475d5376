// The row kernels for any CPU: the compiler splits the 16 lanes as the baseline allows.
#define BATON_ROW_KERNELS kRowKernelsPortable
#include "linalg/row_kernels.inc"
