// tessera-opt: reads IR text, runs any range of the compiler's passes on it, and prints IR text.

#include "run_opt.h"
#include "tools/cli/command.h"
#include "tools/cli/run_main.h"
#include "tools/cli/version.h"

namespace {

void add_flags(tessera::cli::Command& app, tessera::opt::Flags& flags) {
  app.add_option("FILE", flags.file,
                 "a file of IR text or of a StableHLO module in bytecode; - is standard input")
      ->capture_default_str();
  app.add_option("--passes", flags.passes, "run these passes in this order: a,b,c");
  app.add_option("--from", flags.from,
                 "the first stage or pass to run; with stablehlo, FILE must be a StableHLO module");
  app.add_option("--to", flags.to, "the last stage or pass to run");
  app.add_option(
      "--differentiate", flags.differentiate,
      "run this stage; wrt=0,1 adds the gradients of output 0 with respect to inputs 0 and 1");
  auto add_switch = [&](const char* name, bool& value, const char* text) {
    app.add_flag(name, value, text)->disable_flag_override();
  };
  add_switch("--simplify", flags.simplify, "run this stage");
  add_switch("--partition", flags.partition,
             "run this stage; <...> after the type of an input gives its sharding");
  app.add_option(
      "--storage", flags.storage,
      "inputs that are stored state, for example 0,2: --partition gathers these inputs rather than "
      "activations");
  app.add_option("--mesh", flags.mesh,
                 "a mesh that replaces the one in the program, for example data=4,model=2");
  app.add_option("--disable", flags.disable, "skip these optional passes: a,b,c");
  add_switch("--verify", flags.verify, "check the program before and after each pass");
  add_switch("--time", flags.time, "write the time of each pass to standard error");
  add_switch("--dump-each", flags.dump_each, "write the program after each pass to standard error");
  add_switch("--explain", flags.explain, "print the table of collectives instead of the program");
  app.add_option(
      "--emit", flags.emit,
      "print the program in another language: stablehlo, for accelerator compilers, or module, the "
      "unchanged StableHLO module of FILE as text");
  add_switch("--list", flags.list, "list the stages and passes");
}

int run(int argc, char** argv) {
  tessera::cli::Command app("Runs passes of the compiler on IR text.", "tessera-opt");
  app.set_version(std::string("tessera-opt ") + tessera::cli::version());
  tessera::opt::Flags flags;
  add_flags(app, flags);
  app.callback([&flags] { tessera::opt::run_opt(flags); });
  return app.parse(argc, argv);
}

}  // namespace

int main(int argc, char** argv) { return tessera::cli::run_main("tessera-opt", run, argc, argv); }
