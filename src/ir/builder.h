// Appends equations to a function, inferring types as it goes.
#pragma once

#include "ir/ir.h"

namespace tessera::ir {

class Builder {
 public:
  /// `function` must outlive the builder.
  explicit Builder(Function& function) : function_(function) {}

  Function& function() { return function_; }
  const Type& type(ValueId id) const { return function_.type(id); }

  ValueId add_input(Type type);
  /// Appends an equation and returns its results. Throws UserError if the operands do not fit, and
  /// InternalError if no op has this name.
  std::vector<ValueId> emit_all(const ops::OpRecord& op, Attributes attributes,
                                std::vector<ValueId> operands);
  std::vector<ValueId> emit_all(std::string_view op, Attributes attributes,
                                std::vector<ValueId> operands);
  /// For ops with one result.
  ValueId emit(const ops::OpRecord& op, Attributes attributes, std::vector<ValueId> operands);
  ValueId emit(std::string_view op, Attributes attributes, std::vector<ValueId> operands);
  void set_outputs(std::vector<ValueId> outputs) { function_.outputs = std::move(outputs); }

  /// The source position for the following equations.
  void set_span(Span span) { span_ = std::move(span); }
  const Span& span() const { return span_; }

  /// Inlines `callee`: copies its equations with its inputs bound to `arguments`. Returns its
  /// outputs.
  std::vector<ValueId> inline_function(const Function& callee,
                                       const std::vector<ValueId>& arguments);

 private:
  Function& function_;
  Span span_;
};

}  // namespace tessera::ir
