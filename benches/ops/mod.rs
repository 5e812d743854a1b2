//! Times each op and kernel at a model's sizes with criterion, for `cpu.rs` and `gpu.rs`.

use std::time::Duration;

use criterion::{Criterion, Throughput};
use hipvit::Result;
use hipvit_diagnostics::validate::{Options, time_each};

/// Benchmarks the cases that `options` select. Throughput is in bytes of operands and results.
pub(crate) fn bench(criterion: &mut Criterion, options: &Options) -> Result<()> {
    let skipped = time_each(options, &mut |timed, run| {
        let mut failure = None;
        let mut group = criterion.benchmark_group(timed.op);
        group
            .sample_size(10)
            .warm_up_time(Duration::from_millis(200))
            .measurement_time(Duration::from_secs(1))
            .throughput(Throughput::Bytes(timed.bytes));
        group.bench_function(&timed.name, |bencher| {
            bencher.iter_custom(|count| {
                let time = run(usize::try_from(count).unwrap_or(usize::MAX));
                // criterion continues after an error, so it needs a time.
                time.unwrap_or_else(|error| {
                    failure = Some(error);
                    Duration::from_nanos(count)
                })
            });
        });
        group.finish();
        failure.map_or(Ok(()), Err)
    })?;
    for case in skipped {
        println!("skipped: {case}");
    }
    Ok(())
}
