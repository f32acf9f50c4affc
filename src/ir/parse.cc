#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include <tessera/error.h>

#include "base/read_number.h"
#include "ir/text.h"

namespace tessera::ir {

namespace {

constexpr ValueId kMaxValues = 1U << 20;
constexpr int kMaxDepth = 32;  // of functions nested in functions
constexpr std::int64_t kMaxIndex = std::int64_t{1} << 40;

/// A recursive-descent parser of the text form. Every error names the line of the text.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Function parse_function() {
    word("function");
    function_.name = identifier();
    expect('[');
    word("mesh");
    expect('=');
    function_.mesh = mesh();
    atoms_ = atoms_of(function_.mesh);
    expect(',');
    word("grains");
    expect('=');
    function_.grains = integer();
    if (function_.grains < 1) fail("1 grain or more", std::to_string(function_.grains));
    if (accept(',')) read_numerics();
    expect(']');
    function_body();
    skip_space();
    if (at_ < text_.size()) fail("the end of the text");
    return std::move(function_);
  }

 private:
  [[noreturn]] void fail(const std::string& wanted) {
    const std::size_t end = std::min(text_.find('\n', at_), text_.size());
    fail(wanted,
         at_ < end ? "'" + shown(text_.substr(at_, end - at_)) + "'" : "the end of the line");
  }
  [[noreturn]] void fail(const std::string& wanted, const std::string& found) {
    throw UserError(
        {.what = "parse: line " + std::to_string(line_) + " of the text is not IR",
         .found = found,
         .wanted = wanted,
         .cure = "write it as print() does; see the comment at the top of src/ir/ir.h"});
  }

  /// The beginning of arbitrary text, for messages.
  static std::string shown(std::string_view text) {
    constexpr std::size_t kMost = 80;
    std::string result(text.substr(0, kMost));
    for (char& c : result) {
      if (std::isprint(static_cast<unsigned char>(c)) == 0) c = '?';
    }
    return text.size() > kMost ? result + "..." : result;
  }

  /// Without nested functions.
  static std::string first_line(const std::string& text) {
    const std::size_t end = text.find('\n');
    return end == std::string::npos ? text : text.substr(0, end) + " ...";
  }

  /// An error from another part of the library, with the line of the text added.
  [[noreturn]] static void fail_at(std::size_t line, const UserError& error,
                                   const std::string& text) {
    Mistake mistake = error.mistake();
    mistake.what = "parse: line " + std::to_string(line) + ": " + mistake.what;
    if (!text.empty()) mistake.found += " in '" + first_line(text) + "'";
    throw UserError(std::move(mistake));
  }

  void read_numerics() {
    word("numerics");
    expect('=');
    const std::string text = quoted();
    for (const Numerics numerics : {Numerics::fast, Numerics::device}) {
      if (text == tessera::name(numerics)) function_.numerics = numerics;
    }
    if (function_.numerics == Numerics::exact) {
      fail("\"fast\" or \"device\"; leave numerics out for exact ones", "'" + text + "'");
    }
  }

  /// Inputs, equations and outputs of function_.
  void function_body() {
    expect('(');
    while (!accept(')')) {
      if (!function_.inputs.empty()) expect(',');
      function_.inputs.push_back(definition());
    }
    expect('{');
    while (!accept_word("return")) function_.equations.push_back(equation());
    while (peek() == '%') {
      function_.outputs.push_back(use());
      if (!accept(',')) break;
    }
    expect('}');
  }
  Function nested_function() {
    if (++depth_ > kMaxDepth)
      fail("functions nested at most " + std::to_string(kMaxDepth) + " deep");
    Function inner;
    inner.name = "body";
    inner.mesh = function_.mesh;
    inner.grains = function_.grains;
    inner.numerics = function_.numerics;
    std::swap(function_, inner);
    std::vector<bool> outer_is_defined = std::move(is_defined_);
    is_defined_.clear();
    function_body();
    std::swap(function_, inner);
    is_defined_ = std::move(outer_is_defined);
    --depth_;
    return inner;
  }
  Bodies bodies() {
    expect('{');
    Bodies result;
    while (!accept('}')) {
      if (!result.functions.empty()) expect(',');
      result.functions.push_back(std::make_shared<const Function>(nested_function()));
    }
    return result;
  }

  /// Also skips lines that begin with '#'. After an equation, '#' begins its source line.
  void skip_space() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#' && is_at_line_start_) {
        at_ = std::min(text_.find('\n', at_), text_.size());
        continue;
      }
      if (std::isspace(static_cast<unsigned char>(c)) == 0) break;
      if (c == '\n') {
        ++line_;
        is_at_line_start_ = true;
      }
      ++at_;
    }
    is_at_line_start_ = false;
  }
  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(std::string("'") + c + "'");
  }
  static bool is_name(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '#';
  }
  std::string identifier() {
    skip_space();
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_name(text_[at_])) ++at_;
    if (at_ == begin) fail("a name");
    return std::string(text_.substr(begin, at_ - begin));
  }
  bool accept_word(std::string_view wanted) {
    skip_space();
    if (text_.substr(at_, wanted.size()) != wanted) return false;
    if (at_ + wanted.size() < text_.size() && is_name(text_[at_ + wanted.size()])) return false;
    at_ += wanted.size();
    return true;
  }
  void word(std::string_view wanted) {
    if (!accept_word(wanted)) fail("'" + std::string(wanted) + "'");
  }
  std::string quoted() {
    expect('"');
    const std::size_t end = text_.find('"', at_);
    if (end == std::string_view::npos) fail("a closing quote");
    std::string value(text_.substr(at_, end - at_));
    at_ = end + 1;
    return value;
  }
  template <typename T>
  T read_number(const char* wanted) {
    skip_space();
    T value{};
    const auto [end, error] =
        tessera::read_number(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) fail(wanted);
    at_ = static_cast<std::size_t>(end - text_.data());
    return value;
  }
  std::int64_t integer() { return read_number<std::int64_t>("a whole number"); }

  Mesh mesh() {
    try {
      return parse_mesh(quoted(), std::source_location());
    } catch (const UserError& error) {
      fail_at(line_, error, "");
    }
  }

  ValueId value_name() {
    expect('%');
    const auto id = read_number<std::uint32_t>("the number of a value");
    if (id >= kMaxValues) fail("a value number below " + std::to_string(kMaxValues));
    return id;
  }
  ValueId use() {
    const ValueId id = value_name();
    if (id >= is_defined_.size() || !is_defined_[id]) {
      fail("a value that is defined above", "%" + std::to_string(id));
    }
    return id;
  }
  ValueId definition() {
    const ValueId id = value_name();
    expect(':');
    if (id >= function_.values.size()) {
      function_.values.resize(id + 1);
      is_defined_.resize(id + 1, false);
    }
    if (is_defined_[id]) {
      fail("a value number that is not used yet", "%" + std::to_string(id) + " a second time");
    }
    is_defined_[id] = true;
    Value& value = function_.values[id];
    value.type = type();
    if (peek() == '<') value.sharding = sharding();
    if (value.sharding && !value.sharding->open.empty()) {
      fail("a sharding without open dimensions: only constraints may have ?",
           to_string(function_.mesh, *value.sharding));
    }
    if (value.sharding && value.sharding->dims.size() != value.type.shape.size()) {
      fail("a sharding with an entry per dimension",
           to_string(function_.mesh, *value.sharding) + " for " + to_string(value.type));
    }
    return id;
  }
  DType dtype() {
    const std::string text = identifier();
    for (DType candidate : kAllDTypes) {
      if (name(candidate) == text) return candidate;
    }
    fail("a dtype: bool, i8 to i64, u8 to u64, f16, bf16, f32 or f64", "'" + text + "'");
  }
  Type type() {
    Type result;
    result.dtype = dtype();
    result.shape = ints();
    std::int64_t count = 1;
    for (std::int64_t size : result.shape) {
      if (size < 0 || (size > 0 && count > kMaxIndex / size)) {
        fail("sizes of 0 or more and at most 2^40 elements", to_string(result));
      }
      count *= std::max<std::int64_t>(size, 1);
    }
    return result;
  }
  HostCallback host_callback() {
    HostCallback result;
    if (!accept('(')) return result;
    while (!accept(')')) {
      if (!result.results.empty()) expect(',');
      result.results.push_back(type());
    }
    return result;
  }
  Ints ints() {
    expect('[');
    Ints values;
    while (!accept(']')) {
      if (!values.empty()) expect(',');
      values.push_back(integer());
    }
    return values;
  }
  /// `is_open`: on entry whether the list may end in `?`, on return whether it does.
  AtomList atom_list(bool* is_open = nullptr) {
    expect('{');
    AtomList list;
    while (!accept('}')) {
      if (is_open != nullptr && accept('?')) {
        *is_open = true;
        expect('}');
        break;
      }
      const std::string text = identifier();
      const std::size_t mark = text.find('#');
      const std::size_t before = list.size();
      std::int64_t part = 0;
      for (std::size_t i = 0; i < atoms_.size(); ++i) {
        if (function_.mesh.axes()[static_cast<std::size_t>(atoms_[i].axis)].name !=
            text.substr(0, mark)) {
          continue;
        }
        if (mark == std::string::npos || std::to_string(part) == text.substr(mark + 1)) {
          list.push_back(static_cast<AtomId>(i));
        }
        ++part;
      }
      if (list.size() == before) {
        fail("an axis of the mesh " + to_string(function_.mesh), "'" + text + "'");
      }
    }
    return list;
  }
  Window::Term window_term(AtomList& list) {
    const bool is_down = accept('-');
    if (!is_down) expect('+');
    Window::Term term{.size = integer(), .step = 1, .num_atoms = 0};
    if (accept('*')) term.step = std::exchange(term.size, integer());
    if (term.size < 0 || term.step < 1 || term.size > kMaxIndex / term.step) {
      fail("sizes of 0 or more and steps of 1 or more, 2^40 at most together");
    }
    if (is_down) term.step = -term.step;
    if (peek() == '{') {
      const AtomList atoms = atom_list();
      term.num_atoms = atoms.size();
      list.insert(list.end(), atoms.begin(), atoms.end());
    }
    return term;
  }
  /// `[offset+step*size{axes}...]` or `[(...)/divisor]`; its atoms go to `list`.
  Window window(std::size_t dim, AtomList& list) {
    expect('[');
    const bool is_quotient = accept('(');
    Window result{.dim = dim, .offset = integer(), .terms = {}};
    if (result.offset < -kMaxIndex || result.offset > kMaxIndex) fail("an offset of 2^40 at most");
    while (peek() == '+' || peek() == '-') result.terms.push_back(window_term(list));
    if (is_quotient) {
      expect(')');
      expect('/');
      result.divisor = integer();
      if (result.divisor < 1 || result.divisor > kMaxIndex) fail("a divisor from 1 to 2^40");
    }
    expect(']');
    return result;
  }
  Sharding sharding() {
    expect('<');
    Sharding result;
    while (peek() == '{' || peek() == '[') {
      if (peek() == '[') {
        AtomList list;
        result.windows.push_back(window(result.dims.size(), list));
        result.dims.push_back(std::move(list));
        if (!accept(',')) break;
        continue;
      }
      bool is_open = false;
      result.dims.push_back(atom_list(&is_open));
      if (is_open) result.open.push_back(result.dims.size() - 1);
      if (!accept(',')) break;
    }
    if (accept('+')) result.partial = atom_list();
    expect('>');
    AtomList used = used_atoms(result);
    std::sort(used.begin(), used.end());
    if (std::adjacent_find(used.begin(), used.end()) != used.end()) {
      fail("a sharding that uses each axis once", to_string(function_.mesh, result));
    }
    return result;
  }
  Attribute attribute() {
    const char c = peek();
    if (c == '"') return quoted();
    if (c == '[') return ints();
    if (c == '<') {
      Sharding result = sharding();
      if (!result.windows.empty()) fail("a sharding without windows: only types may have them");
      return result;
    }
    if (c == '{') return bodies();
    if (accept_word("true")) return true;
    if (accept_word("false")) return false;
    if (accept_word("watcher")) return ShardingWatcher{};
    if (accept_word("host_callback")) return host_callback();
    if (std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '-' ||
        text_.substr(at_, 3) == "inf" || text_.substr(at_, 3) == "nan") {
      const std::size_t end = text_.find_first_of(",] \n", at_);
      const std::string_view token = text_.substr(at_, end - at_);
      if (token.find_first_of(".einf") != std::string_view::npos) {
        const auto number = read_number<double>("a number");
        // The text form has only one NaN, without sign and payload.
        return std::isnan(number) ? std::numeric_limits<double>::quiet_NaN() : number;
      }
      return integer();
    }
    return dtype();
  }
  Attributes attributes() {
    Attributes result;
    while (!accept(']')) {
      if (!result.items().empty()) expect(',');
      std::string key = identifier();
      expect('=');
      if (result.has(key)) fail("each attribute once", "'" + key + "' a second time");
      result.set(std::move(key), attribute());
    }
    return result;
  }
  Span span() {
    // A span is on the line of its equation; a comment on the next line is not a span.
    std::size_t look = at_;
    while (look < text_.size() && (text_[look] == ' ' || text_[look] == '\t')) ++look;
    if (text_.substr(look, 1) != "#") return {};
    const std::size_t end = std::min(text_.find('\n', look), text_.size());
    const std::size_t first = std::min(text_.find_first_not_of(" \t", look + 1), end);
    const std::string text(text_.substr(first, end - first));
    at_ = look + 1;
    const std::size_t colon = text.rfind(':');
    std::uint32_t line = 0;
    if (colon == std::string::npos || colon == 0 ||
        std::from_chars(text.data() + colon + 1, text.data() + text.size(), line).ec !=
            std::errc()) {
      fail("a position file:line");
    }
    at_ = end;
    return {text.substr(0, colon), line};
  }
  Equation equation() {
    // Results are defined after the operands have been read, so that no value can use itself.
    const std::size_t begin = at_;
    const std::size_t begin_line = line_;
    const std::size_t equals = find_equals();
    const std::size_t equation_line = line_;
    at_ = equals + 1;
    Equation result{};
    const std::string op = identifier();
    result.op = find_op(op);
    if (result.op == nullptr) fail("an op that docs/ops.md lists", "'" + op + "'");
    if (at_ < text_.size() && text_[at_] == '[') {
      ++at_;
      result.attributes = attributes();
    }
    add_usual_attributes(*result.op, result.attributes);
    while (peek_same_line() == '%') {
      result.operands.push_back(use());
      if (!accept(',')) break;
    }
    result.span = span();
    const std::size_t end = at_;
    const std::size_t end_line = line_;
    at_ = begin;
    line_ = begin_line;
    do {
      result.results.push_back(definition());
    } while (accept(','));
    expect('=');
    at_ = end;
    line_ = end_line;
    check_types(result, equation_line);
    return result;
  }
  void check_types(const Equation& equation, std::size_t line) {
    std::vector<Type> types;
    try {
      types = infer_types(*equation.op, equation.attributes, operand_types(function_, equation),
                          equation.span);
    } catch (const UserError& error) {
      fail_at(line, error, print(function_, equation, {.spans = false}));
    }
    const std::vector<Type> written = result_types(function_, equation);
    if (types == written) return;
    auto list = [](const std::vector<Type>& all) {
      std::string text;
      for (const Type& type : all) text += (text.empty() ? "" : ", ") + to_string(type);
      return text.empty() ? std::string("no result") : text;
    };
    line_ = line;
    fail(list(types) + " as the result of " + std::string(op_name(*equation.op)), list(written));
  }
  std::size_t find_equals() {
    const std::size_t line_end = std::min(text_.find('\n', skip_blank_lines()), text_.size());
    const std::size_t equals = text_.find(" = ", at_);
    if (equals == std::string_view::npos || equals > line_end) fail("results = op operands");
    return equals + 1;
  }
  std::size_t skip_blank_lines() {
    skip_space();
    return at_;
  }
  char peek_same_line() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t line_ = 1;
  bool is_at_line_start_ = true;  // only blanks have been read since
  int depth_ = 0;
  Function function_;
  std::vector<Atom> atoms_;
  std::vector<bool> is_defined_;
};

}  // namespace

Function parse(std::string_view text) { return Parser(text).parse_function(); }

}  // namespace tessera::ir
