//! The ladder measures the gain of each optimisation. It goes from a naive execution to the full one, one
//! optimisation per rung.

use super::rung::Rung;
use super::spec::Spec;
use hipvit::exec::GraphMode;
use hipvit::graph::Optimizations;
use hipvit::run_config::ExecutionConfig;
use hipvit::session::Device;
use hipvit::tensor::DType;

/// Returns the [applicable](Rung::applies) rungs that lead to `full`, which has the dtype, batch and device
/// of the last one.
pub fn ladder(full: &Spec, device: Device) -> Vec<Spec> {
    let rungs = Rung::ALL
        .into_iter()
        .filter(|rung| rung.applies(device, full.dtype));
    rungs
        .map(|rung| Spec {
            dtype: if rung.reached(Rung::Precision) {
                full.dtype
            } else {
                DType::F32
            },
            optimizations: Optimizations {
                fused_attention: rung.reached(Rung::FusedAttention),
                fusion: rung.reached(Rung::Fusion),
                epilogues: rung.reached(Rung::Epilogues),
                memory_reuse: rung.reached(Rung::MemoryPlan),
                selection: rung.reached(Rung::Selection),
            },
            execution: ExecutionConfig {
                hip_graphs: if rung.reached(Rung::Graphs) {
                    full.execution.hip_graphs
                } else {
                    GraphMode::Off
                },
                ..full.execution.clone()
            },
            in_flight: if rung == Rung::Overlap {
                full.in_flight.max(OVERLAP)
            } else {
                1
            },
            rung: Some(rung),
            ..full.clone()
        })
        .collect()
}

/// Batches in flight: one is copied in, one computes, one is copied out.
const OVERLAP: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rung_changes_one_thing() {
        let full = Spec {
            dtype: DType::BF16,
            ..Spec::default()
        };
        let specs = ladder(&full, Device::Hip(0));
        assert_eq!(specs.len(), Rung::ALL.len());
        let what = |spec: &Spec| {
            let o = spec.optimizations;
            let graphs = spec.execution.hip_graphs != GraphMode::Off;
            [
                spec.dtype != DType::F32,
                o.fused_attention,
                o.fusion,
                o.epilogues,
                o.memory_reuse,
                graphs,
                o.selection,
                spec.in_flight > 1,
            ]
        };
        for (rung, spec) in specs.iter().enumerate() {
            let expected: Vec<bool> = (1..Rung::ALL.len()).map(|other| rung >= other).collect();
            assert_eq!(what(spec).to_vec(), expected, "{:?}", spec.rung);
        }
        let last = specs.last().unwrap();
        assert_eq!(last.optimizations, Optimizations::default());
    }

    #[test]
    fn a_cpu_has_fewer_rungs() {
        let specs = ladder(&Spec::default(), Device::Cpu);
        let rungs: Vec<_> = specs.iter().filter_map(|spec| spec.rung).collect();
        assert_eq!(
            rungs,
            [Rung::Naive, Rung::Fusion, Rung::MemoryPlan, Rung::Overlap]
        );
    }
}
