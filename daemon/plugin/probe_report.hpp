#pragma once

#include <cstddef>

/// The lines that travel from the probing child to the daemon: one letter, text, newline.
namespace plugin::report {

inline constexpr int kFd = 3;                       ///< where the child writes them
inline constexpr std::size_t kMaxLine = 1000;       ///< bytes of text
inline constexpr std::size_t kMaxBytes = 64 << 10;  ///< of a whole report; more is not read

inline constexpr char kStage = 's';    ///< what is about to be done
inline constexpr char kProblem = 'p';  ///< why the image cannot be used
inline constexpr char kFact = 'f';     ///< key, tab, value
inline constexpr char kDone = 'd';     ///< everything was done

}  // namespace plugin::report
