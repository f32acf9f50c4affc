#!/usr/bin/env python3
"""Checks that TensorBoard's profile plugin shows content in every tool: check_profile.py
FILE.xplane.pb

Needs the Python package xprof (pip install xprof). Prints what each tool shows and ends with PASS.
"""
import json
import pathlib
import re
import sys

from xprof.convert import raw_to_tool_data

TOOLS = {"trace_viewer@", "overview_page", "op_profile", "memory_profile", "memory_viewer",
         "graph_viewer", "hlo_stats", "roofline_model", "framework_op_stats"}


class Profile:
    def __init__(self, path):
        self.path = str(path)

    def names(self):
        return set(raw_to_tool_data.xspace_to_tool_names([self.path]))

    def text(self, tool, **parameters):
        data, _ = raw_to_tool_data.xspace_to_tool_data(
            [self.path], tool, {"use_saved_result": False, **parameters})
        return data.decode() if isinstance(data, bytes) else data

    def json(self, tool, **parameters):
        return json.loads(self.text(tool, **parameters))


def check_trace(profile):
    events = profile.json("trace_viewer@")["traceEvents"]
    rows = sorted(e["args"]["name"] for e in events if e.get("name") == "process_name")
    spans = [e for e in events if e.get("ph") == "X"]
    arrows = sum("bind_id" in e for e in spans)
    print(f"trace viewer: {len(rows)} planes, {len(spans)} events, {arrows} ends of arrows")
    assert any("/device:" in row for row in rows) and spans
    return arrows


def check_overview(profile):
    overview = profile.json("overview_page")
    steps = [row["c"][0]["v"] for row in overview[1]["rows"]]
    device = overview[2]["p"]
    print(f"overview: {device['device_core_count']} x {device['device_type']}, steps {steps}, "
          f"{overview[1]['p']['steptime_ms_average']} ms per step")
    assert steps and float(overview[1]["p"]["steptime_ms_average"]) > 0


def check_ops(profile):
    total = profile.json("op_profile", group_by="program")["byProgram"]
    programs = [(node["name"], node["metrics"].get("rawTime", 0), node["metrics"]["rawFlops"])
                for node in total["children"]]
    print("op profile:", programs)
    assert sum(flops for _, _, flops in programs) > 0
    stats = profile.json("hlo_stats")["rows"]
    roofline = profile.json("roofline_model")[0]["p"]
    print(f"hlo stats: {len(stats)} ops; roofline: {roofline.get('peak_flop_rate')} GFLOP/s, "
          f"{roofline.get('peak_hbm_bw')} GiB/s")
    assert stats and float(roofline["peak_flop_rate"]) > 0 and float(roofline["peak_hbm_bw"]) > 0
    framework = profile.json("framework_op_stats")
    assert framework[0]["rows"]


def modules(profile):
    """The names of the programs, in the order of the file."""
    data = pathlib.Path(profile.path).read_bytes()
    found = re.findall(rb"execute ([\w.-]+\(\d+\))", data)
    return list(dict.fromkeys(name.decode() for name in found))


def check_programs(profile):
    for module in modules(profile):
        memory = profile.json("memory_viewer", module_name=module)
        text = profile.text("graph_viewer", graph_viewer_options={
            "module_name": module, "type": "short_txt", "program_id": "", "node_name": "",
            "format": "html", "graph_width": 2, "show_metadata": True, "merge_fusion": False})
        print(f"{module}: peak {memory.get('peakHeapMib')} MiB heap, {len(memory['maxHeap'])} "
              f"buffers at the peak, {len(memory.get('heapSizes', []))} points in time; "
              f"{len(text.splitlines())} lines of HLO")
        assert memory["maxHeap"] and "ENTRY" in text
        node = re.search(r"^ +%?([\w.-]+) = .*(?:dot|fusion)\(", text, re.M)
        if node is None:
            continue
        graph = profile.text("graph_viewer", graph_viewer_options={
            "module_name": module, "type": "graph", "program_id": "", "node_name": node[1],
            "format": "html", "graph_width": 2, "show_metadata": True, "merge_fusion": False})
        assert "digraph" in graph


def check_memory(profile):
    allocators = profile.json("memory_profile")["memoryProfilePerAllocator"]
    for name, one in allocators.items():
        peak = one["profileSummary"]["peakBytesUsageLifetime"]
        print(f"memory profile: {name}, peak {peak} bytes, "
              f"{len(one['sampledTimelineSnapshots'])} points in time")
    assert allocators


def main():
    profile = Profile(sys.argv[1])
    missing = TOOLS - profile.names()
    assert not missing, f"no data for {missing}"
    arrows = check_trace(profile)
    check_overview(profile)
    check_ops(profile)
    check_programs(profile)
    check_memory(profile)
    if "--arrows" in sys.argv:
        assert arrows > 0
    print("PASS")


main()
