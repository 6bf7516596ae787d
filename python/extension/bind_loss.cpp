// What tensors lost before they were stored: the bounds, and the errors that were caused.
#include <optional>
#include <string_view>
#include <utility>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string_view.h>

#include <bitsnap/quantization.hpp>

#include "bindings.hpp"
#include "report_class.hpp"

namespace nb = nanobind;

namespace bitsnap::python {

namespace {

std::string_view unit_of_bound(Quantization quantization) {
  if (quantization == Quantization::update_step) return "of the update";
  return quantization == Quantization::clusters ? "absolute" : "relative";
}

// A sum, divided by the number of sampled elements.
auto mean_of(double UpdateErrors::* sum) {
  return [sum](const UpdateErrors& self) { return self.*sum / static_cast<double>(self.elements); };
}

}  // namespace

void bind_loss(nb::module_& module) {
  ReportClass<AdamNumbers>(module, "AdamNumbers", "The values of Adam that an update is computed with.")
      .field("betas", [](const AdamNumbers& self) { return std::pair(self.beta1, self.beta2); })
      .field("eps", &AdamNumbers::eps)
      .field("step", &AdamNumbers::step, "The number of steps that the optimizer has taken.")
      .native()
      .def(
          "__init__",
          [](AdamNumbers* self, std::pair<double, double> betas, double eps, std::uint64_t step) {
            new (self) AdamNumbers{.beta1 = betas.first, .beta2 = betas.second, .eps = eps, .step = step};
          },
          nb::arg("betas"), nb::arg("eps"), nb::arg("step"));

  ReportClass<ErrorTally>(module, "ErrorTally",
                          "The errors of the elements of a tensor. A relative error is a fraction of the element; an "
                          "absolute error has the unit of the tensor.")
      .field("elements", &ErrorTally::elements)
      .field("changed", &ErrorTally::changed, "Elements whose bits changed.")
      .field("finite", &ErrorTally::finite, "Elements that are neither infinite nor NaN.")
      .field("nonzero", &ErrorTally::nonzero, "Finite elements that are not 0.")
      .field("past_nearest", &ErrorTally::past_nearest,
             "Elements that could not become the nearest value; their error is at most twice the bound.")
      .field("max_relative", &ErrorTally::max_relative)
      .field("mean_relative", &ErrorTally::mean_relative, "Mean over the nonzero elements.")
      .field("max_absolute", &ErrorTally::max_absolute)
      .field("mean_square", &ErrorTally::mean_square, "Mean square of the absolute errors of the finite elements.")
      .computed("kept_exact", &ErrorTally::kept_exact, "Elements whose bits did not change.");

  ReportClass<UpdateErrors>(module, "UpdateErrors",
                            "The errors of Adam's updates ``(m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)``, "
                            "computed from the exact and from the stored moments.")
      .field("elements", &UpdateErrors::elements, "Sampled elements, whose updates are finite.")
      .field("largest", &UpdateErrors::largest, "The largest error.")
      .field("mean", mean_of(&UpdateErrors::sum), "The mean error.")
      .field("mean_square", mean_of(&UpdateErrors::sum_square), "The mean square of the errors.")
      .field("mean_of_updates", mean_of(&UpdateErrors::sum_update), "The mean magnitude of the exact updates.")
      .field("mean_square_of_updates", mean_of(&UpdateErrors::sum_update_square));

  ReportClass<LossReport>(module, "LossReport", "What a tensor lost before it was stored.")
      .field(
          "name", [](const LossReport& self) { return quantization_name(self.quantization); },
          R"("mantissa_bits", "master_bits", "update_step" or "clusters".)")
      .field("amount", &LossReport::amount, "Bits, a fraction of the update, or the number of clusters.")
      .field("bound", &LossReport::bound,
             "The largest error of an element, or twice that past the nearest value. None: there is no bound.")
      .field(
          "bound_of", [](const LossReport& self) { return unit_of_bound(self.quantization); },
          R"(The unit of the bound: "relative" to the element, "absolute", or "of the update" that it produces.)")
      .field("next_update_bound", &LossReport::next_update_bound,
             "For update_step, the largest error of the next update. None: not known.")
      .field("all_updates_bound", &LossReport::all_updates_bound,
             "For update_step, the largest error of the sum of all later updates. None: not known.")
      .field("adam", &LossReport::adam, "For first moments.")
      .field("reached", &LossReport::reached, "The errors of the elements.")
      .field(
          "updates",
          [](const LossReport& self) {
            return self.updates.elements == 0 ? std::nullopt : std::optional(self.updates);
          },
          "For first moments with known values of Adam: the errors of the updates.");
}

}  // namespace bitsnap::python
