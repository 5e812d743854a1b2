//! The crate's own kernels, ready to launch: their code is found among what was embedded or compiled by hipRTC, their
//! launches are planned by [`crate::ops::launch`], and what each may touch is stated here.

use std::any::Any;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use bytemuck::NoUninit;

use super::code::Code;
use super::device::Device;
use super::kernel::{Access, Arguments, Kernel, Launch};
use super::module::Module;
use super::operand::Operand;
use super::rtc::Rtc;
use super::stream::Stream;
use crate::error::{Error, Result};
use crate::ops::launch::arguments::{
    AddArgs, AttentionArgs, BiasActivationArgs, LayerNormArgs, PatchExtractArgs, PoolArgs, ResizeArgs,
    ResizeNearestArgs, SoftmaxArgs, SwiGluArgs, TokensArgs, Visibility,
};
use crate::ops::launch::{self, attention, device_code, elementwise, image, rows};
use crate::tensor::DType;

/// The arguments of one kernel of `hip/`.
///
/// # Safety
///
/// The file's entries that [`plan`](KernelArguments::plan) names take one parameter of this layout, and launched as it
/// says they touch only what [`touch`](KernelArguments::touch) says.
pub(crate) unsafe trait KernelArguments: Copy + Send + Sync + 'static {
    /// The kernel file, without its extension.
    const FILE: &'static str;

    /// The op part of the entry's name, and the launch; sets what of the arguments depends on that.
    fn plan(
        &mut self,
        dtype: DType,
        properties: &launch::Properties,
    ) -> Result<(Cow<'static, str>, launch::Launch), String>;

    /// What the kernel may touch, if its elements take `size` bytes.
    fn touch(&self, size: usize, visit: &mut dyn FnMut(Access));
}

/// Arguments with the size of the elements that their addresses lead to.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Typed<A, const SIZE: usize>(A);

// SAFETY: an `A` by `repr(transparent)`, and those are arguments of kernels, which `packed` finds free of padding.
unsafe impl<A: KernelArguments, const SIZE: usize> NoUninit for Typed<A, SIZE> {}

impl<A: KernelArguments, const SIZE: usize> Arguments for Typed<A, SIZE> {
    fn accesses(&self, visit: &mut dyn FnMut(Access)) {
        self.0.touch(SIZE, visit);
    }
}

/// Kernel files, loaded on a device for one dtype.
pub(crate) struct Kernels {
    device: Device,
    dtype: DType,
    properties: launch::Properties,
    modules: HashMap<&'static str, Module>,
    /// `Kernel<Typed<A, SIZE>>` by the entry's name, of those that were launched.
    entries: Mutex<HashMap<String, Box<dyn Any + Send + Sync>>>,
}

impl Kernels {
    /// Loads these kernel files. What has no code object for the device is compiled, once in a process.
    ///
    /// # Errors
    ///
    /// [`Error::Compile`], [`Error::NoCode`] or [`Error::Provider`] if a file cannot be compiled or loaded.
    pub(crate) fn load(
        device: &Device,
        dtype: DType,
        files: impl IntoIterator<Item = &'static str>,
    ) -> Result<Self> {
        let properties = device.properties();
        let load = |file| Ok((file, Module::load(device, code(device, file)?)?));
        Ok(Self {
            device: device.clone(),
            dtype,
            properties: launch::Properties {
                wave_size: properties.wave_size,
                compute_units: properties.compute_units,
                lds_bytes: u32::try_from(properties.lds_per_block).unwrap_or(u32::MAX),
                max_blocks: properties.grid[0],
            },
            modules: files.into_iter().map(load).collect::<Result<_>>()?,
            entries: Mutex::default(),
        })
    }

    /// Submits a launch that touches nothing but `operands`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the arguments point elsewhere or the device cannot launch it; what the driver says.
    pub(crate) fn launch<A: KernelArguments>(
        &self,
        stream: &Stream,
        arguments: A,
        operands: &[Operand<'_>],
    ) -> Result<()> {
        match self.dtype {
            DType::F32 => self.submit::<A, 4>(stream, arguments, operands),
            DType::F16 | DType::BF16 => self.submit::<A, 2>(stream, arguments, operands),
            DType::U8 => self.submit::<A, 1>(stream, arguments, operands),
        }
    }

    fn submit<A: KernelArguments, const SIZE: usize>(
        &self,
        stream: &Stream,
        mut arguments: A,
        operands: &[Operand<'_>],
    ) -> Result<()> {
        let (op, geometry) = arguments
            .plan(self.dtype, &self.properties)
            .map_err(|reason| Error::argument("launch", format!("{}: {reason}", A::FILE)))?;
        let kernel = self.kernel::<A, SIZE>(launch::entry(&op, self.dtype))?;
        let geometry = Launch {
            grid: [geometry.grid, 1, 1],
            block: [geometry.block, 1, 1],
            // The kernels declare theirs.
            lds_bytes: 0,
        };
        kernel.launch(stream, geometry, &Typed::<A, SIZE>(arguments), operands)
    }

    fn kernel<A: KernelArguments, const SIZE: usize>(&self, entry: String) -> Result<Kernel<Typed<A, SIZE>>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let known = entries
            .get(&entry)
            .and_then(|k| k.downcast_ref::<Kernel<Typed<A, SIZE>>>());
        if let Some(kernel) = known {
            return Ok(kernel.clone());
        }
        let module = self
            .modules
            .get(A::FILE)
            .ok_or_else(|| Error::argument("kernel", format!("{} is not loaded", A::FILE)))?;
        // SAFETY: `KernelArguments` promises it for the launches that it plans, and `submit` makes no others.
        let kernel = unsafe { module.kernel::<Typed<A, SIZE>>(&entry) }?;
        entries.insert(entry, Box::new(kernel.clone()));
        Ok(kernel)
    }
}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernels")
            .field("device", &self.device)
            .field("dtype", &self.dtype)
            .finish_non_exhaustive()
    }
}

/// A kernel file's code for the device.
fn code(device: &Device, file: &'static str) -> Result<Code> {
    static COMPILED: Mutex<Vec<(String, &'static str, Code)>> = Mutex::new(Vec::new());
    let target = &device.properties().target;
    if let Some(object) = device_code::object(file, target) {
        return Code::new(object.bytes);
    }
    // Held meanwhile, so that no two threads compile the same.
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((.., code)) = compiled.iter().find(|(t, f, _)| t == target && *f == file) {
        return Ok(code.clone());
    }
    let source = device_code::source(file)
        .ok_or_else(|| Error::argument("kernel", format!("there is no file hip/{file}.hip")))?;
    let code = rtc(device, file)?.compile(
        &format!("{file}.hip"),
        source,
        device_code::headers(),
        device_code::OPTIONS,
    )?;
    compiled.push((target.clone(), file, code.clone()));
    Ok(code)
}

/// The compiler for a kernel file that has no code object for the device. That there is none either means that the device
/// cannot be used as the crate was built.
fn rtc(device: &Device, file: &'static str) -> Result<Rtc> {
    Rtc::new(device).map_err(|error| {
        let archs: Vec<_> = device_code::archs().into_iter().collect();
        let built = match archs.as_slice() {
            [] => "for no architecture".to_owned(),
            archs => format!("for {} only", archs.join(", ")),
        };
        Error::NoCode {
            device: device.name().to_owned(),
            arch: device.properties().arch().to_owned(),
            reason: format!("`{file}` was compiled {built}, and {error}"),
        }
    })
}

/// The bytes of so many elements of `size` bytes each.
pub(super) fn stretch(size: usize) -> impl Fn(&[u32]) -> usize {
    move |extents| {
        let bytes = |bytes: usize, &extent: &u32| bytes.saturating_mul(extent as usize);
        extents.iter().fold(size, bytes)
    }
}

/// A use of what may be missing: nothing at a null address.
fn optional(access: Access) -> Access {
    let bytes = if access.address == 0 { 0 } else { access.bytes };
    Access { bytes, ..access }
}

/// Sees at compile time that there is no padding between the fields of these structures or after them.
macro_rules! packed {
    ($($arguments:ty),*) => {
        $(const _: () = {
            let layout = <$arguments>::LAYOUT;
            let (mut end, mut i) = (0, 0);
            while i < layout.fields.len() {
                assert!(layout.fields[i].1 == end);
                end += layout.fields[i].2;
                i += 1;
            }
            assert!(layout.bytes == end);
        };)*
    };
}

packed!(
    PatchExtractArgs,
    TokensArgs,
    AddArgs,
    LayerNormArgs,
    BiasActivationArgs,
    SwiGluArgs,
    AttentionArgs,
    Visibility,
    PoolArgs,
    ResizeArgs,
    ResizeNearestArgs,
    SoftmaxArgs
);

/// `patch_extract`'s arguments where the pixels are f32 `[B,3,H,W]`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(transparent)]
pub(crate) struct PatchExtractChwArgs(pub(crate) PatchExtractArgs);

impl PatchExtractArgs {
    fn launch(
        &self,
        chw: bool,
        dtype: DType,
        properties: &launch::Properties,
    ) -> Result<launch::Launch, String> {
        let image = [self.height.into(), self.width.into()];
        let patch = [self.patch_height.into(), self.patch_width.into()];
        image::patch_extract(self.images.into(), image, patch, chw, dtype, properties)
    }

    fn touch(&self, pixel: usize, size: usize, visit: &mut dyn FnMut(Access)) {
        let pixels = stretch(pixel)(&[self.images, self.height, self.width, 3]);
        visit(Access::read("pixels", self.pixels, pixels));
        let down = self.height.checked_div(self.patch_height).unwrap_or(0);
        let across = self.width.checked_div(self.patch_width).unwrap_or(0);
        let extents = [self.images, down, across, 3, self.patch_height, self.patch_width];
        visit(Access::write("out", self.out, stretch(size)(&extents)));
    }
}

// SAFETY: hip/patch_extract.hip; threads beyond the last patch return.
unsafe impl KernelArguments for PatchExtractArgs {
    const FILE: &'static str = "patch_extract";

    fn plan(
        &mut self,
        dtype: DType,
        properties: &launch::Properties,
    ) -> Result<(Cow<'static, str>, launch::Launch), String> {
        Ok(("patch_extract".into(), self.launch(false, dtype, properties)?))
    }

    fn touch(&self, size: usize, visit: &mut dyn FnMut(Access)) {
        self.touch(1, size, visit);
    }
}

// SAFETY: as above.
unsafe impl KernelArguments for PatchExtractChwArgs {
    const FILE: &'static str = "patch_extract";

    fn plan(
        &mut self,
        dtype: DType,
        properties: &launch::Properties,
    ) -> Result<(Cow<'static, str>, launch::Launch), String> {
        let launch = self.0.launch(true, dtype, properties)?;
        Ok(("patch_extract_chw".into(), launch))
    }

    fn touch(&self, size: usize, visit: &mut dyn FnMut(Access)) {
        self.0.touch(size_of::<f32>(), size, visit);
    }
}

// SAFETY: hip/tokens.hip; threads beyond the last row return.
unsafe impl KernelArguments for TokensArgs {
    const FILE: &'static str = "tokens";

    fn plan(
        &mut self,
        dtype: DType,
        properties: &launch::Properties,
    ) -> Result<(Cow<'static, str>, launch::Launch), String> {
        let rows = u64::from(self.images) * (u64::from(self.prefixes) + u64::from(self.tokens));
        let launch = elementwise::rows(rows, self.channels.into(), dtype, properties)?;
        Ok(("tokens".into(), launch))
    }

    fn touch(&self, size: usize, visit: &mut dyn FnMut(Access)) {
        let bytes = stretch(size);
        let (images, tokens, channels) = (self.images, self.tokens, self.channels);
        visit(Access::read("x", self.x, bytes(&[images, tokens, channels])));
        visit(Access::read(
            "prefix",
            self.prefix,
            bytes(&[self.prefixes, channels]),
        ));
        visit(optional(Access::read(
            "position",
            self.position,
            bytes(&[tokens, channels]),
        )));
        let all = self.prefixes.saturating_add(tokens);
        visit(Access::write("out", self.out, bytes(&[images, all, channels])));
    }
}

// SAFETY: hip/add.hip; threads beyond the last row return.
unsafe impl KernelArguments for AddArgs {
    const FILE: &'static str = "add";

    fn plan(
        &mut self,
        dtype: DType,
        properties: &launch::Properties,
    ) -> Result<(Cow<'static, str>, launch::Launch), String> {
        if self.y != 0 && self.y_rows == 0 {
            return Err("the second operand has no rows".into());
        }
        let launch = elementwise::rows(self.rows.into(), self.channels.into(), dtype, properties)?;
        Ok(("add".into(), launch))
    }

    fn touch(&self, size: usize, visit: &mut dyn FnMut(Access)) {
        let bytes = stretch(size);
        let all = [self.rows, self.channels];
        visit(Access::read("x", self.x, bytes(&all)));
        visit(optional(Access::read(
            "gamma",
            self.gamma,
            bytes(&[self.channels]),
        )));
        let y_rows = self.y_rows.min(self.rows);
        visit(optional(Access::read(
            "y",
            self.y,
            bytes(&[y_rows, self.channels]),
        )));
        visit(Access::write("out", self.out, bytes(&all)));
    }
}

// SAFETY: hip/layer_norm.hip; waves and blocks beyond the last row return.
unsafe impl KernelArguments for LayerNormArgs {
    const FILE: &'static str = "layer_norm";

    fn plan(
        &mut self,
        _dtype: DType,
        properties: &launch::Properties,
    ) -> Result<(Cow<'static, str>, launch::Launch), String> {
        let (launch, whole_block) = rows::plan(self.rows.into(), self.channels.into(), properties)?;
        self.whole_block = whole_block;
        Ok(("layer_norm".into(), launch))
    }

    fn touch(&self, size: usize, visit: &mut dyn FnMut(Access)) {
        let bytes = stretch(size);
        let all = [self.rows, self.channels];
        visit(Access::read("x", self.x, bytes(&all)));
        visit(optional(Access::read("residual", self.residual, bytes(&all))));
        visit(Access::read("weight", self.weight, bytes(&[self.channels])));
        visit(Access::read("bias", self.bias, bytes(&[self.channels])));
        visit(optional(Access::write("sum", self.sum, bytes(&all))));
        visit(Access::write("out", self.out, bytes(&all)));
    }
}

// SAFETY: hip/bias_activation.hip; threads beyond the last row return.
unsafe impl KernelArguments for BiasActivationArgs {
    const FILE: &'static str = "bias_activation";

    fn plan(
        &mut self,
        dtype: DType,
        properties: &launch::Properties,
    ) -> Result<(Cow<'static, str>, launch::Launch), String> {
        let launch = elementwise::rows(self.rows.into(), self.channels.into(), dtype, properties)?;
        Ok(("bias_activation".into(), launch))
    }

    fn touch(&self, size: usize, visit: &mut dyn FnMut(Access)) {
        let bytes = stretch(size);
        let all = [self.rows, self.channels];
        visit(Access::read("x", self.x, bytes(&all)));
        visit(optional(Access::read("bias", self.bias, bytes(&[self.channels]))));
        visit(optional(Access::read("residual", self.residual, bytes(&all))));
        visit(Access::write("out", self.out, bytes(&all)));
    }
}

// SAFETY: hip/swiglu.hip; threads beyond the last row return.
unsafe impl KernelArguments for SwiGluArgs {
    const FILE: &'static str = "swiglu";

    fn plan(
        &mut self,
        dtype: DType,
        properties: &launch::Properties,
    ) -> Result<(Cow<'static, str>, launch::Launch), String> {
        let launch = elementwise::rows(self.rows.into(), self.channels.into(), dtype, properties)?;
        Ok(("swiglu".into(), launch))
    }

    fn touch(&self, size: usize, visit: &mut dyn FnMut(Access)) {
        let bytes = stretch(size);
        visit(Access::read("x", self.x, bytes(&[self.rows, 2, self.channels])));
        visit(optional(Access::read(
            "bias",
            self.bias,
            bytes(&[2, self.channels]),
        )));
        visit(Access::write("out", self.out, bytes(&[self.rows, self.channels])));
    }
}

// SAFETY: hip/attention.hip, whose blocks are at most one for each 64 queries of a head of an image: so many are launched.
unsafe impl KernelArguments for AttentionArgs {
    const FILE: &'static str = "attention";

    fn plan(
        &mut self,
        dtype: DType,
        properties: &launch::Properties,
    ) -> Result<(Cow<'static, str>, launch::Launch), String> {
        if [self.images, self.heads, self.queries, self.keys].contains(&0) {
            return Err("there is nothing to attend to".into());
        }
        let shape = attention::Shape {
            images: self.images.into(),
            heads: self.heads.into(),
            queries: self.queries.into(),
            head_dim: self.head_dim,
        };
        let (op, launch) = attention::plan(shape, dtype, properties)?;
        Ok((op.into(), launch))
    }

    fn touch(&self, size: usize, visit: &mut dyn FnMut(Access)) {
        let head = u64::from(self.heads).saturating_mul(self.head_dim.into());
        let (queries, keys) = (self.queries, self.keys);
        for (field, address, image, token, tokens) in [
            ("q", self.q, self.q_image, self.q_token, queries),
            ("k", self.k, self.k_image, self.k_token, keys),
            ("v", self.v, self.v_image, self.v_token, keys),
            ("out", self.out, self.out_image, self.out_token, queries),
        ] {
            let images = image.saturating_mul(u64::from(self.images.saturating_sub(1)));
            let tokens = u64::from(token) * u64::from(tokens.saturating_sub(1));
            let elements = images.saturating_add(tokens).saturating_add(head);
            let bytes = usize::try_from(elements)
                .unwrap_or(usize::MAX)
                .saturating_mul(size);
            visit(Access {
                written: field == "out",
                ..Access::read(field, address, bytes)
            });
        }
        touch_mask(&self.visible, self.images, keys, visit);
    }
}

fn touch_mask(visible: &Visibility, images: u32, keys: u32, visit: &mut dyn FnMut(Access)) {
    let mask = visible.key_mask;
    let bytes = stretch(1)(&[images, keys]);
    visit(optional(Access::read("key_mask", mask, bytes)));
}

// SAFETY: hip/softmax.hip; waves and blocks beyond the last row return.
unsafe impl KernelArguments for SoftmaxArgs {
    const FILE: &'static str = "softmax";

    fn plan(
        &mut self,
        _dtype: DType,
        properties: &launch::Properties,
    ) -> Result<(Cow<'static, str>, launch::Launch), String> {
        if [self.images, self.heads, self.queries, self.keys].contains(&0) {
            return Err("there is nothing to attend to".into());
        }
        let rows = u64::from(self.images) * u64::from(self.heads);
        let rows = rows
            .checked_mul(self.queries.into())
            .ok_or("there are too many queries")?;
        let (launch, whole_block) = rows::plan(rows, self.keys.into(), properties)?;
        self.whole_block = whole_block;
        Ok(("softmax".into(), launch))
    }

    fn touch(&self, size: usize, visit: &mut dyn FnMut(Access)) {
        let bytes = stretch(size);
        let all = [self.images, self.heads, self.queries, self.keys];
        visit(Access::read("x", self.x, bytes(&all)));
        visit(Access::write("out", self.out, bytes(&all)));
        touch_mask(&self.visible, self.images, self.keys, visit);
    }
}

// SAFETY: hip/pool.hip, whose blocks are one a group of an image's channels: so many are launched.
unsafe impl KernelArguments for PoolArgs {
    const FILE: &'static str = "pool";

    fn plan(
        &mut self,
        dtype: DType,
        properties: &launch::Properties,
    ) -> Result<(Cow<'static, str>, launch::Launch), String> {
        if self.first >= self.tokens || self.images == 0 {
            return Err(format!("token {} is not among the {}", self.first, self.tokens));
        }
        let launch = elementwise::pool(self.images.into(), self.channels.into(), dtype, properties)?;
        Ok(("pool".into(), launch))
    }

    fn touch(&self, size: usize, visit: &mut dyn FnMut(Access)) {
        let bytes = stretch(size);
        visit(Access::read(
            "x",
            self.x,
            bytes(&[self.images, self.tokens, self.channels]),
        ));
        visit(Access::write(
            "out",
            self.out,
            bytes(&[self.images, self.channels]),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_must_be_there_is_touched_even_at_null() {
        let arguments = AddArgs {
            x: 0,
            gamma: 0,
            y: 0,
            out: 256,
            rows: 3,
            channels: 5,
            y_rows: 0,
            factor: 1.0,
        };
        let mut touched = Vec::new();
        arguments.touch(2, &mut |access| {
            touched.push((access.field, access.bytes, access.written));
        });
        let all = 3 * 5 * 2;
        assert_eq!(
            touched,
            [
                ("x", all, false),
                ("gamma", 0, false),
                ("y", 0, false),
                ("out", all, true)
            ]
        );
    }
}
