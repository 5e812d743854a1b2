//! Kernels that take one structure.

use hip_safe::{Access, Arguments, Device, DeviceAddress, Error, Kernel, Launch, Module, Rtc};

use super::scale::{scale, scale_kernel};
use super::{Check, ensure, numbers};

pub(crate) fn compile_error(device: &Device) -> Check {
    match Rtc::new(device)?.compile(
        "broken.hip",
        "extern \"C\" __global__ void f() { nonsense; }",
        &[],
        &[],
    ) {
        Err(Error::Compile { reason, .. }) => {
            ensure(reason.contains("nonsense"), || reason.clone())?;
            Ok(reason)
        }
        other => Err(format!("{other:?}").into()),
    }
}

pub(crate) fn kernel(device: &Device) -> Check {
    let kernel = scale_kernel(device)?;
    let stream = device.stream()?;
    let values = numbers(1_000_003, 2);
    let from = stream.upload(&values)?;
    let mut to = stream.zeroed::<f32>(values.len())?;
    scale(&kernel, &stream, -3.0, from.reading(), to.writing())?;
    ensure(
        to.read()?.iter().zip(&values).all(|(a, b)| *a == -3.0 * b),
        || "wrong values".into(),
    )?;
    let refused = scale(&kernel, &stream, 1.0, from.reading().part(0..8)?, to.writing());
    ensure(refused.is_err(), || {
        "a launch outside its operands was let through".into()
    })?;
    Ok("compiled, loaded, launched".into())
}

const ENDS: &str = r#"
struct Ends { float* to; unsigned last; unsigned reserved; };
extern "C" __global__ void ends(Ends a) {
    extern __shared__ float lds[];
    if (threadIdx.x == 0) {
        lds[0] = 1.0f;
        lds[a.last] = 2.0f;
    }
    __syncthreads();
    if (threadIdx.x < 2) a.to[threadIdx.x] = lds[threadIdx.x * a.last];
}
"#;

#[repr(C)]
#[derive(Clone, Copy)]
struct Ends {
    to: DeviceAddress,
    last: u32,
    reserved: u32,
}

impl Arguments for Ends {
    fn accesses(&self, visit: &mut dyn FnMut(Access)) {
        visit(Access::write("to", self.to, 8));
    }
}

/// All that a block can get is there at both of its ends; a byte more is refused.
pub(crate) fn dynamic_lds(device: &Device) -> Check {
    let code = Rtc::new(device)?.compile("ends.hip", ENDS, &[], &[])?;
    // SAFETY: the source above takes this structure and writes two floats at its address. Its other accesses are to LDS, where
    // the launches below give it `last + 1` floats.
    let kernel: Kernel<Ends> = unsafe { Module::load(device, code)?.kernel("ends") }?;
    let stream = device.stream()?;
    let most = device.properties().lds_per_block_max as u32;
    for bytes in [most, device.properties().lds_per_block as u32, 512] {
        let mut to = stream.zeroed::<f32>(2)?;
        let arguments = Ends {
            to: to.address(),
            last: bytes / 4 - 1,
            reserved: 0,
        };
        let launch = Launch {
            lds_bytes: bytes,
            ..Launch::new(1, 64)
        };
        kernel.launch(&stream, launch, &arguments, &[to.writing()])?;
        let got = to.read()?;
        ensure(got == [1.0, 2.0], || format!("{got:?} with {bytes} bytes"))?;
        let launch = Launch {
            lds_bytes: most + 1,
            ..launch
        };
        let refused = kernel.launch(&stream, launch, &arguments, &[to.writing()]);
        ensure(refused.is_err(), || "more than there is was let through".into())?;
    }
    Ok(format!("{most} bytes"))
}
