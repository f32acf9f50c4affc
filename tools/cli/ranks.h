// Programs of several processes: each error is reported once.
#pragma once

#include <cstdint>
#include <functional>

#include <tessera/engine.h>

namespace tessera::cli {

/// A program that reports its errors as run_main() does, with the rank in front.
class RankProgram final : public IsolatedProgram {
 public:
  RankProgram(const char* name, const std::function<void()>& body) : name_(name), body_(body) {}
  void run() override { body_(); }
  int report(const std::exception_ptr& error) override;
  int report_again(const std::exception_ptr& error) override;

 private:
  const char* name_;
  const std::function<void()>& body_;
};

/// Keeps the arguments of this process for flags_that_agree().
void keep_arguments(int argc, char** argv);

/// The arguments of this process as names and values, without the flags that may differ between
/// ranks: threads, and what a rank writes or shows.
std::vector<std::pair<std::string, std::string>> flags_that_agree();

/// Runs `body` as one of the ranks that a launcher has started. Returns only after success.
void run_as_rank(const char* name, LaunchOptions options, const std::function<void()>& body);

/// If a launcher has started this process, but it has not joined the others: joins them to report
/// the error once, and ends.
void report_as_rank(const char* name, const std::exception_ptr& error);

}  // namespace tessera::cli
