// Learners side by side: one's arrays out of the stacks that hold all, and back, as XLA FFI calls. XLA
// would take a program for each array, and hand them to several threads.
#include <cstring>

#include "xla/ffi/api/ffi.h"

namespace bayestream {
namespace {

namespace ffi = xla::ffi;

char* bytes(const ffi::AnyBuffer& buffer) { return static_cast<char*>(buffer.untyped_data()); }

// Of each stack, what is in a slot.
ffi::Error take(ffi::Buffer<ffi::S32> slot, ffi::RemainingArgs stacks, ffi::RemainingRets found) {
  for (std::size_t k = 0; k < stacks.size(); ++k) {
    const auto stack = stacks.get<ffi::AnyBuffer>(k);
    auto to = found.get<ffi::AnyBuffer>(k);
    if (!stack || !to) return ffi::Error::InvalidArgument("stack_take: a buffer is missing");
    const std::size_t size = (*to)->size_bytes();
    std::memcpy(bytes(**to), bytes(*stack) + slot.typed_data()[0] * size, size);
  }
  return ffi::Error::Success();
}

// Arguments are the stacks, then what goes into a slot of each; results are the stacks, in place.
ffi::Error put(ffi::Buffer<ffi::S32> slot, ffi::RemainingArgs given, ffi::RemainingRets stacks) {
  const std::size_t count = stacks.size();
  for (std::size_t k = 0; k < count; ++k) {
    const auto stack = given.get<ffi::AnyBuffer>(k), from = given.get<ffi::AnyBuffer>(count + k);
    auto to = stacks.get<ffi::AnyBuffer>(k);
    if (!stack || !from || !to) return ffi::Error::InvalidArgument("stack_put: a buffer is missing");
    if (bytes(*stack) != bytes(**to)) std::memcpy(bytes(**to), bytes(*stack), stack->size_bytes());
    const std::size_t size = from->size_bytes();
    std::memcpy(bytes(**to) + slot.typed_data()[0] * size, bytes(*from), size);
  }
  return ffi::Error::Success();
}

auto binding() {
  return ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::S32>>().RemainingArgs().RemainingRets();
}

}  // namespace
}  // namespace bayestream

XLA_FFI_DEFINE_HANDLER_SYMBOL(bayestream_stack_take, bayestream::take, bayestream::binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(bayestream_stack_put, bayestream::put, bayestream::binding());
