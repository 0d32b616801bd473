// Learners side by side: one's arrays out of the stacks that hold all, and back, as XLA FFI calls. XLA
// would take a program for each array, and hand them to several threads.
#include <cstring>

#include "xla/ffi/api/ffi.h"

namespace bayestream {
namespace {

namespace ffi = xla::ffi;

char* bytes(const ffi::AnyBuffer& buffer) { return static_cast<char*>(buffer.untyped_data()); }

// As memcpy, which for so many bytes has an instruction that is slow between caches; meanwhile what
// is at `next` is asked for.
void copy(char* to, const char* from, std::size_t size, const char* next) {
  constexpr std::size_t kLine = 64;
  std::size_t at = 0;
  for (; at + kLine <= size; at += kLine) {
    __builtin_prefetch(next + at, 0, 2);
    std::memcpy(to + at, from + at, kLine);
  }
  std::memcpy(to + at, from + at, size - at);
}

// Of each stack, what is in the slot of this visit.
ffi::Error take(ffi::Buffer<ffi::S32> index, ffi::Buffer<ffi::S32> slots, ffi::RemainingArgs stacks,
                ffi::RemainingRets found) {
  const std::size_t visit = index.typed_data()[0], last = slots.element_count() - 1;
  const std::size_t slot = slots.typed_data()[visit];
  const std::size_t next = slots.typed_data()[visit < last ? visit + 1 : last];
  for (std::size_t k = 0; k < stacks.size(); ++k) {
    const auto stack = stacks.get<ffi::AnyBuffer>(k);
    auto to = found.get<ffi::AnyBuffer>(k);
    if (!stack || !to) return ffi::Error::InvalidArgument("stack_take: a buffer is missing");
    const std::size_t size = (*to)->size_bytes();
    copy(bytes(**to), bytes(*stack) + slot * size, size, bytes(*stack) + next * size);
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
    char* there = bytes(**to) + slot.typed_data()[0] * size;
    copy(there, bytes(*from), size, there);
  }
  return ffi::Error::Success();
}

}  // namespace
}  // namespace bayestream

XLA_FFI_DEFINE_HANDLER_SYMBOL(bayestream_stack_take, bayestream::take,
                              xla::ffi::Ffi::Bind()
                                  .Arg<xla::ffi::Buffer<xla::ffi::S32>>()
                                  .Arg<xla::ffi::Buffer<xla::ffi::S32>>()
                                  .RemainingArgs()
                                  .RemainingRets());
XLA_FFI_DEFINE_HANDLER_SYMBOL(bayestream_stack_put, bayestream::put,
                              xla::ffi::Ffi::Bind()
                                  .Arg<xla::ffi::Buffer<xla::ffi::S32>>()
                                  .RemainingArgs()
                                  .RemainingRets());
