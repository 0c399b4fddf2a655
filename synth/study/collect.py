"""Runs the measurements that the synthesis report needs, each once, through the result cache."""

import concurrent.futures
import contextlib
import dataclasses
import threading

from rich.console import Console

from cli.progress import progress_bar
from cli.workers import ClusterError, Workers
from hw.config import VARIANTS, make_config
from synth.asic import report as asic
from synth.common.errors import ToolError
from synth.common.reproduce import options_of
from synth.fpga import report as fpga
from synth.sram import report as sram

__all__ = ["FLOWS", "collect", "configurations"]

#: Flow -> what it is, in the order in which they run: what fails early comes first.
FLOWS = {
    "sram": "memories with CACTI",
    "asic": "standard cells",
    "xc7": "Xilinx 7-series area",
    "ecp5": "ECP5 place and route",
}

#: Device names for :mod:`synth.fpga.report`.
XC7_DEVICE = "xc7"


def configurations(preset: str, *, probes: bool = True) -> dict:
    """Name -> configuration: the four variants and, unless they are left out, the two probes.

    ``probe_main`` is ``baseline`` with one more step of columns, ``probe_predictor`` is ``max``
    with one step fewer in the predictor array (one more where none would be left). A step is the
    width of the post-processing, so that nothing but the number of columns differs.
    """
    designs = {variant: make_config(variant=variant, preset=preset) for variant in VARIANTS}
    if not probes:
        return designs
    main, predictor = designs["max"].cores
    designs["probe_main"] = dataclasses.replace(
        designs["baseline"], columns=main.columns + main.post_lanes, post_lanes=main.post_lanes
    )
    step = predictor.post_lanes
    columns = predictor.columns + (-step if predictor.columns > step else step)
    designs["probe_predictor"] = dataclasses.replace(
        designs["max"], predictor_columns=columns, predictor_post_lanes=step
    )
    return designs


def collect(
    configs: dict,
    *,
    flows,
    device: str,
    seeds,
    placed=VARIANTS,
    workload: str = "conv",
    refresh: bool = False,
    workers: Workers | None = None,
) -> dict:
    """Measure designs; returns name -> figures, as :mod:`synth.study.analysis` describes them.

    Parameters
    ----------
    configs : from :func:`configurations`
    flows : of :data:`FLOWS`
    device : an ECP5 of :mod:`synth.fpga.report`
    seeds : of place and route
    placed : designs that are mapped to the device, and placed and routed where there are seeds
    workload : what runs for power, of :data:`synth.asic.activity.WORKLOADS`
    workers : how many measurements at a time, or on which cluster; one at a time if None

    Shows progress on stderr. The first :class:`ToolError` ends it; what was measured until then is
    in the cache and is not measured again. Workers of a cluster have caches of their own.
    """
    workers = workers or Workers(jobs=1)
    designs = {
        name: {
            "configuration": config.as_dict(),
            "configuration_hash": config.hash,
            "options": options_of(config),
            "pes": config.pes,
            "arrays": [[core.rows, core.columns] for core in config.cores],
        }
        for name, config in configs.items()
    }
    tasks = [
        (flow, name)
        for flow in FLOWS
        if flow in flows
        for name in configs
        if flow != "ecp5" or name in placed
    ]
    with _progress(len(tasks)) as (report, finished):

        def arguments(flow, name):
            # What a column of the predictor array costs is asked for area only.
            power = None if name == "probe_predictor" else workload
            return flow, configs[name], device, seeds, power, refresh

        def measure(task):
            flow, name = task
            return _measure(
                *arguments(flow, name), lambda text: report(f"{name}, {FLOWS[flow]}: {text}")
            )

        if workers.scheduler is None:
            results = _in_threads(measure, tasks, workers.jobs)
        else:
            results = _on_cluster(workers, [arguments(*task) for task in tasks])
        for number, result in results:
            flow, name = tasks[number]
            designs[name][flow] = result
            finished(f"{name}, {FLOWS[flow]}")
    for design in designs.values():  # in one order, whatever was ready first
        design |= {flow: design.pop(flow) for flow in FLOWS if flow in design}
    return designs


def _in_threads(measure, tasks, jobs):
    """(number, result) of each task; the tools are programs of their own, so threads will do."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=jobs) as pool:
        futures = {pool.submit(measure, task): number for number, task in enumerate(tasks)}
        try:
            for future in concurrent.futures.as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _on_cluster(workers, arguments):
    try:
        yield from workers.results(_measure, arguments)
    except ClusterError as error:
        raise ToolError(str(error)) from None


def _measure(flow, config, device, seeds, workload, refresh, progress=lambda text: None):
    progress("starting")
    if flow == "sram":
        result = sram.measure(config, refresh=refresh, progress=progress)
        if config.variant == "baseline":
            result["sensitivity"] = sram.sensitivity(config, refresh=refresh, progress=progress)
        return result
    if flow == "asic":
        return asic.measure(config, workload=workload, refresh=refresh, progress=progress)
    if flow == "xc7":
        return fpga.measure(config, device=XC7_DEVICE, seeds=(), refresh=refresh, progress=progress)
    return _ecp5(config, device=device, seeds=seeds, refresh=refresh, progress=progress)


def _ecp5(config, *, device, seeds, refresh, progress):
    """On an ECP5, with as few multipliers of look-up tables as its multiplier blocks ask for."""
    area = fpga.measure(config, device=device, seeds=(), refresh=refresh, progress=progress)
    excess = area["over"].get("MULT18X18D", 0)
    if excess and config.format.is_float:
        rows = min(config.rows, config.lut_multiplier_rows + -(-excess // config.columns))
        config = dataclasses.replace(config, lut_multiplier_rows=rows)
    elif not seeds:
        return area
    return fpga.measure(config, device=device, seeds=seeds, refresh=refresh, progress=progress)


@contextlib.contextmanager
def _progress(total):
    """Two functions: one shows what is being done, the other that a measurement is finished."""
    console = Console(stderr=True)
    lock = threading.Lock()
    with progress_bar(console) as bar:
        task = bar.add_task("starting", total=total)
        done = 0

        def report(text):
            bar.update(task, description=text)

        def finished(text):
            nonlocal done
            with lock:
                done += 1
                bar.update(task, completed=done)
                if not console.is_terminal:
                    console.print(f"[{done}/{total}] {text}", markup=False, highlight=False)

        yield report, finished
