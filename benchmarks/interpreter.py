"""Compare three ways to replay a step: TorchScript, Python, and a list of operators that C++ calls one by one.

    python benchmarks/interpreter.py             # W1, W2 and W3 of `turnout speed`; needs a C++ compiler and ninja

TorchScript does not support Python 3.14. The list of operators is what could replace it: it needs the dispatcher alone, and
is compiled for the installed PyTorch. All ways are timed in turns on one thread, and have to leave the same bits.
"""

from __future__ import annotations

import argparse
import operator
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.utils.cpp_extension import load_inline

import turnout
from turnout.cli.settings import Settings
from turnout.engine.compile import plain
from turnout.engine.compile.backends import BACKENDS
from turnout.engine.compile.tracer import Operations
from turnout.simulation.simulation import Simulation
from turnout.workbench.speed.workloads import WORKLOADS

_STEPS = 20

_SOURCE = """
#include <torch/extension.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/InferenceMode.h>

struct Call {
  c10::OperatorHandle op;
  std::vector<std::pair<int64_t, c10::IValue>> arguments;  // a slot, or -1 and a constant
  std::vector<std::vector<int64_t>> lists;                 // slots of an argument that is a list of tensors
  std::vector<int64_t> results, last;                      // slots that are written, and that are read for the last time
  bool listed;                                             // the results are a list
};

struct Program {
  std::vector<Call> calls;
  std::vector<c10::IValue> values;
  int64_t num_fixed;

  Program(int64_t num_values, int64_t num_fixed) : values(num_values), num_fixed(num_fixed) {}

  void constant(int64_t slot, at::Tensor value) { values[slot] = value; }

  void call(const std::string& name, const std::string& overload, py::list arguments, std::vector<int64_t> results,
            std::vector<int64_t> last, bool listed) {
    auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str());
    Call made{op, {}, {}, results, last, listed};
    for (size_t i = 0; i < arguments.size(); ++i) {
      py::tuple kind = arguments[i].cast<py::tuple>();
      auto what = kind[0].cast<std::string>();
      if (what == "slot") {
        made.arguments.emplace_back(kind[1].cast<int64_t>(), c10::IValue());
      } else if (what == "slots") {
        made.arguments.emplace_back(-2 - (int64_t)made.lists.size(), c10::IValue());
        made.lists.push_back(kind[1].cast<std::vector<int64_t>>());
      } else {
        py::object given = kind[1];
        made.arguments.emplace_back(-1, torch::jit::toIValue(given, op.schema().arguments()[i].type()));
      }
    }
    calls.push_back(std::move(made));
  }

  void repeat(std::vector<at::Tensor> fixed, std::vector<at::Tensor> columns) {
    py::gil_scoped_release release;
    c10::InferenceMode mode;
    std::vector<std::vector<at::Tensor>> rows;
    for (auto& column : columns) rows.push_back(column.unbind());
    for (size_t i = 0; i < fixed.size(); ++i) values[i] = fixed[i];
    torch::jit::Stack stack;
    for (size_t step = 0; step < rows[0].size(); ++step) {
      for (size_t j = 0; j < rows.size(); ++j) values[num_fixed + j] = rows[j][step];
      for (auto& call : calls) {
        for (auto& [slot, constant] : call.arguments) {
          if (slot >= 0) stack.push_back(values[slot]);
          else if (slot == -1) stack.push_back(constant);
          else {
            c10::List<at::Tensor> list;
            for (auto one : call.lists[-2 - slot]) list.push_back(values[one].toTensor());
            stack.push_back(std::move(list));
          }
        }
        call.op.callBoxed(stack);
        if (call.listed) {
          auto items = stack[0].toListRef().vec();
          for (size_t k = 0; k < call.results.size(); ++k)
            if (call.results[k] >= 0) values[call.results[k]] = items[k];
        } else for (size_t k = 0; k < call.results.size(); ++k)
          if (call.results[k] >= 0) values[call.results[k]] = std::move(stack[k]);
        stack.clear();
        for (auto slot : call.last) values[slot] = c10::IValue();
      }
    }
  }
};

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  py::class_<Program>(m, "Program")
      .def(py::init<int64_t, int64_t>())
      .def("constant", &Program::constant)
      .def("call", &Program::call)
      .def("repeat", &Program::repeat);
}
"""


def operators(extension: Any, traced: Operations, fixed: int) -> Callable[..., Any]:
    """Return a function that repeats the operations of a trace as a list of operators."""
    nodes = [node for node in traced.graph.nodes if node.op != "output"]
    slots: dict[torch.fx.Node, int] = {}
    picked: dict[torch.fx.Node, dict[int, int]] = {}  # values that are items of several results
    for node in nodes:
        slots[node] = len(slots)
        if node.target is operator.getitem:
            picked.setdefault(node.args[0], {})[node.args[1]] = slots[node]
    program = extension.Program(len(slots), fixed)
    last = {source: node for node in nodes for source in node.all_input_nodes if source.op == "call_function"}
    tensors = dict(traced.root.named_buffers())
    for node in nodes:
        if node.op == "get_attr":
            program.constant(slots[node], tensors[node.target])
        elif node.op == "call_function" and node.target is not operator.getitem:
            schema = node.target._schema
            given = dict(zip((argument.name for argument in schema.arguments), node.args, strict=False)) | node.kwargs
            arguments = [_argument(given.get(each.name, each.default_value), slots) for each in schema.arguments]
            several = picked.get(node, {})
            listed = bool(several) and len(schema.returns) == 1
            results = [several.get(k, -1) for k in range(max(several) + 1)] if several else [slots[node]]
            ended = [slots[source] for source, user in last.items() if user is node]
            program.call(schema.name, schema.overload_name, arguments, results, ended, listed)
    return program.repeat


def _argument(value: Any, slots: dict[torch.fx.Node, int]) -> tuple[str, Any]:
    """Return how C++ finds the value of an argument."""
    if isinstance(value, torch.fx.Node):
        return "slot", slots[value]
    if isinstance(value, list | tuple) and any(isinstance(each, torch.fx.Node) for each in value):
        return "slots", [slots[each] for each in value]
    return "constant", list(value) if isinstance(value, tuple) else value


def _ways(extension: Any, name: str) -> dict[str, Callable[[], Any]]:
    """Return a stretch of steps of a workload in each way; all change tensors of their own."""
    workload, seen = WORKLOADS[name], []
    torchscript = BACKENDS["torchscript"]

    def kept(traced: Any, arguments: list[torch.Tensor], written: tuple[int, ...], fixed: int | None) -> Any:
        built = torchscript.build(traced, arguments, written, fixed)
        if fixed is not None:
            seen.append((traced, [a.clone() for a in arguments], written, fixed, built))
        return built

    BACKENDS["torchscript"] = replace(torchscript, build=kept)
    simulation = Simulation(Settings.of({"rounds": 10**6}, workload.settings).experiment(workload.data()))
    while not seen:
        simulation.round()
    BACKENDS["torchscript"] = torchscript
    traced, arguments, written, fixed, loop = seen[-1]
    functions = {
        "torchscript": loop,
        "python": plain.build(traced, arguments, written, fixed),
        "operators": operators(extension, traced, fixed),
    }
    made, left = {}, {}
    for way, function in functions.items():
        own = [a.clone() for a in arguments]
        stays, each = own[:fixed], [a.expand(_STEPS, *a.shape).contiguous() for a in own[fixed:]]
        with torch.no_grad():
            function(stays, each)
        left[way] = [a.clone() for a in stays]
        made[way] = torch.no_grad()(lambda function=function, stays=stays, each=each: function(stays, each))
    for way in made:
        same = all(torch.equal(a, b) for a, b in zip(left[way], left["torchscript"], strict=True))
        assert same, f"{way} leaves other bits than TorchScript"
    return made


def main() -> None:
    """Time the named workloads."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("workloads", nargs="*", help="W1, W2 or W3; all of them if none is named")
    parser.add_argument("--repeats", type=int, default=60)
    given = parser.parse_args()
    torch.set_num_threads(1)
    turnout.keep_large_buffers()
    extension = load_inline("turnout_operators", _SOURCE, extra_cflags=["-O2"])
    print("workload  TorchScript, us  Python  ratio  operators  ratio")
    for name in given.workloads or ("W1", "W2", "W3"):
        ways, seconds = _ways(extension, name), {}
        for _ in range(given.repeats):
            for way, function in ways.items():
                begin = time.process_time()
                function()
                seconds.setdefault(way, []).append((time.process_time() - begin) / _STEPS)
        ours, python, other = (1e6 * statistics.median(seconds[way]) for way in ("torchscript", "python", "operators"))
        print(
            f"{name:8s}  {ours:15,.0f}  {python:6,.0f}  {python / ours:5.2f}  {other:9,.0f}  {other / ours:5.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
