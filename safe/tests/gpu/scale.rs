//! The kernel that several checks use.

use hip_safe::{Access, Arguments, Device, DeviceAddress, Kernel, Launch, Module, Operand, Rtc, Stream};

const SCALE: &str = r#"
struct Scale { const float* from; float* to; unsigned n; float factor; };
extern "C" __global__ void scale(Scale a) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < a.n) a.to[i] = a.factor * a.from[i];
}
"#;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    from: DeviceAddress,
    to: DeviceAddress,
    n: u32,
    factor: f32,
}

impl Arguments for Scale {
    fn accesses(&self, visit: &mut dyn FnMut(Access)) {
        visit(Access::read("from", self.from, 4 * self.n as usize));
        visit(Access::write("to", self.to, 4 * self.n as usize));
    }
}

pub(crate) fn scale_kernel(device: &Device) -> hip_safe::Result<Kernel<Scale>> {
    let code = Rtc::new(device)?.compile("scale.hip", SCALE, &[], &[])?;
    let module = Module::load(device, code)?;
    // SAFETY: the source above takes this structure and touches `n` floats behind each address.
    unsafe { module.kernel("scale") }
}

pub(crate) fn scale(
    kernel: &Kernel<Scale>,
    stream: &Stream,
    factor: f32,
    from: Operand<'_>,
    to: Operand<'_>,
) -> hip_safe::Result<()> {
    let n = (to.bytes() / 4) as u32;
    let launch = Launch::new(n.div_ceil(256), 256);
    let arguments = Scale {
        from: from.address(),
        to: to.address(),
        n,
        factor,
    };
    kernel.launch(stream, launch, &arguments, &[from, to])
}
