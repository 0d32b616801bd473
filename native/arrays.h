// Arrays of a call, in memory that a thread has at hand: a step of a small belief needs three dozen, and
// would spend a tenth of its time with malloc.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace bayestream {

// Hands out memory as a stack does. What is given back out of turn waits until all has been.
class Arena {
 public:
  static Arena& mine() {
    thread_local Arena arena;
    return arena;
  }

  void* take(std::size_t bytes) {
    const std::size_t room = rounded(bytes);
    if (room > kRoom - used_) return ::operator new(bytes);
    if (!memory_) memory_.reset(new Line[kRoom / sizeof(Line)]);
    used_ += room;
    ++live_;
    return begin() + used_ - room;
  }

  void give(void* taken, std::size_t bytes) {
    char* const at = static_cast<char*>(taken);
    if (!memory_ || at < begin() || at >= begin() + kRoom) return ::operator delete(taken);
    if (at + rounded(bytes) == begin() + used_) used_ -= rounded(bytes);
    if (--live_ == 0) used_ = 0;
  }

 private:
  static constexpr std::size_t kRoom = 1 << 20;
  struct alignas(64) Line {
    char bytes[64];
  };

  static std::size_t rounded(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
  char* begin() const { return memory_[0].bytes; }

  std::unique_ptr<Line[]> memory_;
  std::size_t used_ = 0, live_ = 0;
};

template <typename T>
struct FromArena {
  using value_type = T;
  FromArena() = default;
  template <typename Other>
  FromArena(const FromArena<Other>&) {}
  T* allocate(std::size_t count) { return static_cast<T*>(Arena::mine().take(count * sizeof(T))); }
  void deallocate(T* taken, std::size_t count) { Arena::mine().give(taken, count * sizeof(T)); }
  bool operator==(const FromArena&) const { return true; }
  bool operator!=(const FromArena&) const { return false; }
};

// Is to be gone when the call is, and on the thread that made it.
template <typename T>
using Array = std::vector<T, FromArena<T>>;

// Memory for one use, of the thread that asks for it, until it asks again.
enum class Use { kPasses, kMatrices };
template <Use kUse, typename Real>
Real* scratch(std::int64_t count) {
  thread_local std::vector<Real> memory;
  if (static_cast<std::int64_t>(memory.size()) < count) memory.resize(count);
  return memory.data();
}

}  // namespace bayestream
