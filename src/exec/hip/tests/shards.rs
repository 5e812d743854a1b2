//! A model whose layers are divided among ranks.

use std::sync::Arc;

use super::VIT;
use super::host::Host;
use super::kernels::Memory as _;
use crate::exec::hip::lower::Call;
use crate::graph::plan::Plan;
use crate::graph::{Passes, interpret, optimize, shard};
use crate::graph_tests::vit::Vit;
use crate::reference::{assert_close, tolerance};
use crate::tensor::{DType, Input};

/// Two ranks run in lock step, each in its own memory. The host sums their parts.
#[test]
fn shards_compute_what_the_whole_model_does() {
    let vit = Vit {
        heads: 2,
        swiglu: true,
        layer_scale: true,
        ..VIT
    };
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        // As for a whole model, plus the roundings of each sum and its parts.
        let roundings = if dtype == DType::F32 {
            1.0
        } else {
            (16.0 * vit.depth as f64).sqrt()
        };
        let tolerance = roundings * tolerance(dtype, 4 * vit.dim);
        let passes = Passes {
            fold_normalize: dtype == DType::F32,
            ..Passes::default()
        };
        let graph = optimize(vit.random(1), &passes).unwrap().0;
        let pixels: Vec<u8> = (0..2 * VIT.image * VIT.image * 3)
            .map(|i| (i * 7919 % 256) as u8)
            .collect();
        let expected = interpret(&graph, 2, Input::Pixels(&pixels)).unwrap();
        let plan = |rank| Plan::new(Arc::new(shard(&graph, rank, 2).unwrap()), 2, dtype).unwrap();
        let plans = [plan(0), plan(1)];
        let mut hosts = plans
            .each_ref()
            .map(|plan| Host::new(plan, Input::Pixels(&pixels)));
        let mut sums = 0;
        for step in 0..plans[0].steps().len() {
            let calls = [0, 1].map(|rank| hosts[rank].calls(&plans[rank], &plans[rank].steps()[step]));
            assert_eq!(calls[0].len(), calls[1].len());
            for pair in calls[0].iter().zip(&calls[1]) {
                let (Call::AllReduce(call), Call::AllReduce(_)) = pair else {
                    hosts[0].memory.call(pair.0);
                    hosts[1].memory.call(pair.1);
                    continue;
                };
                sums += 1;
                for index in 0..call.bytes() / dtype.size() {
                    let mut sum = 0.0;
                    for (host, call) in hosts.iter().zip([pair.0, pair.1]) {
                        let Call::AllReduce(call) = call else {
                            continue;
                        };
                        sum += host.memory.get(call.from, index);
                    }
                    for (host, call) in hosts.iter_mut().zip([pair.0, pair.1]) {
                        let Call::AllReduce(call) = call else {
                            continue;
                        };
                        host.memory.set(call.to, index, sum);
                    }
                }
                for (host, call) in hosts.iter_mut().zip([pair.0, pair.1]) {
                    let Call::AllReduce(call) = call else {
                        continue;
                    };
                    if let Some(kernel) = call.follows().unwrap() {
                        host.memory.call(&kernel.into());
                    }
                }
            }
        }
        assert_eq!(sums, 2 * VIT.depth);
        for (host, plan) in hosts.iter().zip(&plans) {
            for ((_, output), (_, expected)) in host.outputs(plan).iter().zip(&expected) {
                assert_close(output, expected.as_slice().unwrap(), tolerance);
            }
        }
    }
}
