// Which kernels this CPU is given, for people to read.
#include "host.h"

extern "C" const char* bayestream_instruction_set() {
  using Name = const char* (*)();
  return bayestream::best<Name>([] { return "avx512"; }, [] { return "avx2"; },
                                [] { return "baseline"; });
}
