//! Captured graphs.

use hip_safe::{Device, DeviceBuffer, Error, Graph, Kernel, Operand, Stream, Work};

use super::scale::{Scale, scale, scale_kernel};
use super::{Check, ensure, numbers};

struct Chain {
    kernel: Kernel<Scale>,
    from: DeviceBuffer<f32>,
    between: DeviceBuffer<f32>,
    to: DeviceBuffer<f32>,
}

impl Work for Chain {
    type Error = Error;

    fn enqueue(&mut self, stream: &Stream) -> hip_safe::Result<()> {
        scale(
            &self.kernel,
            stream,
            2.0,
            self.from.reading(),
            self.between.writing(),
        )?;
        for _ in 0..20 {
            self.to.copy_from(self.between.reading())?;
            scale(
                &self.kernel,
                stream,
                0.5,
                self.to.reading(),
                self.between.writing(),
            )?;
        }
        Ok(())
    }

    fn outputs(&mut self) -> Vec<Operand<'_>> {
        vec![self.to.writing(), self.between.writing()]
    }
}

pub(crate) fn graph(device: &Device) -> Check {
    let stream = device.stream()?;
    let values = numbers(100_000, 3);
    let chain = Chain {
        kernel: scale_kernel(device)?,
        from: stream.upload(&values)?,
        between: stream.allocate(values.len())?,
        to: stream.allocate(values.len())?,
    };
    let mut graph = Graph::new(&stream, chain)?;
    if let Some(reason) = graph.fallback() {
        return Err(format!("fell back: {reason}").into());
    }
    let other = numbers(values.len(), 4);
    graph.work_mut().from.write(&other)?;
    let start = stream.record()?;
    for _ in 0..100 {
        graph.run()?;
    }
    let elapsed = stream.record()?.since(&start)?;
    let expected = 0.5f32.powi(18);
    let right = graph
        .work()
        .to
        .read()?
        .iter()
        .zip(&other)
        .all(|(a, b)| *a == b * expected);
    ensure(right, || "the replay ignored its new inputs".into())?;
    Ok(format!("41 nodes, {:?} a replay", elapsed / 100))
}
