//! Opens NVIDIA's libraries and finds their functions.
//!
//! cudarc's own loader panics when a library or a function is missing. It reads statuses into Rust enumerations, for which a
//! newer library's status would be undefined behaviour. So only its prototypes are used here. [`Prototype`] turns one into a C
//! function pointer with every enumeration as an integer, and a [`Symbol`] looks the address up once.

use std::env;
use std::ffi::c_void;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::os::unix::{Library as Handle, RTLD_LOCAL, RTLD_NOW};

/// One of NVIDIA's libraries, opened when it is first needed and never closed.
#[derive(Debug)]
pub(crate) struct Library {
    /// The file names of the versions that the calls fit, newest first.
    sonames: &'static [&'static str],
    /// Libraries that it opens itself later, by their bare names: opened first, so that they are found.
    needs: &'static [&'static Library],
    handle: OnceLock<Option<Handle>>,
}

impl Library {
    const fn new(sonames: &'static [&'static str], needs: &'static [&'static Self]) -> Self {
        Self {
            sonames,
            needs,
            handle: OnceLock::new(),
        }
    }

    /// The library, if it is found.
    pub(crate) fn open(&self) -> Option<&Handle> {
        let open = || {
            for library in self.needs {
                library.open();
            }
            find(self.sonames)
        };
        self.handle.get_or_init(open).as_ref()
    }
}

pub(crate) static CUDA: Library = Library::new(&["libcuda.so.1"], &[]);
pub(crate) static NVRTC: Library = Library::new(&["libnvrtc.so.13", "libnvrtc.so.12"], &[]);
pub(crate) static CUBLASLT: Library = Library::new(&["libcublasLt.so.13", "libcublasLt.so.12"], &[]);
pub(crate) static CUBLAS: Library = Library::new(&["libcublas.so.13", "libcublas.so.12"], &[&CUBLASLT]);
pub(crate) static CUSPARSELT: Library = Library::new(&["libcusparseLt.so.0"], &[]);
pub(crate) static CUDNN: Library = Library::new(&["libcudnn.so.9"], &[&CUBLASLT, &NVRTC]);
pub(crate) static NCCL: Library = Library::new(&["libnccl.so.2"], &[]);
/// NVTX of CUDA 12.9 and newer, and of older versions.
pub(crate) static NVTX: Library = Library::new(
    &["libnvtx3interop.so.1", "libnvtx3interop.so", "libnvToolsExt.so.1"],
    &[],
);

/// The first of the files that loads, in the README's order: the folders of `HIP_ON_CUDA_PATH`, the system's loader, then
/// the other folders.
fn find(sonames: &[&str]) -> Option<Handle> {
    let first =
        env::var_os("HIP_ON_CUDA_PATH").map_or_else(Vec::new, |paths| env::split_paths(&paths).collect());
    let in_folders = |folders: &[PathBuf]| {
        let mut files = sonames
            .iter()
            .flat_map(|soname| folders.iter().map(move |folder| folder.join(soname)));
        files.find_map(|file| if file.is_file() { load(&file) } else { None })
    };
    in_folders(&first)
        .or_else(|| sonames.iter().find_map(|soname| load(Path::new(soname))))
        .or_else(|| in_folders(&folders()))
}

/// Returns the folders where CUDA is usually installed: `CUDA_HOME`, `CUDA_PATH`, its default folder, the driver's folder in
/// containers, and the packages of the active Python environment.
fn folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for root in [
        env::var_os("CUDA_HOME"),
        env::var_os("CUDA_PATH"),
        Some("/usr/local/cuda".into()),
        Some("/usr/local/nvidia".into()),
    ]
    .into_iter()
    .flatten()
    {
        folders.extend(["lib64", "lib"].map(|lib| Path::new(&root).join(lib)));
    }
    if let Some(python) = env::var_os("VIRTUAL_ENV") {
        for version in entries(&Path::new(&python).join("lib")) {
            let packages = entries(&version.join("site-packages/nvidia"));
            folders.extend(packages.iter().map(|package| package.join("lib")));
        }
    }
    folders
}

/// Returns the folder of CUDA's headers, which is next to one of the folders in which libraries are searched.
pub(crate) fn include_folder() -> Option<PathBuf> {
    let first =
        env::var_os("HIP_ON_CUDA_PATH").map_or_else(Vec::new, |paths| env::split_paths(&paths).collect());
    first
        .into_iter()
        .chain(folders())
        .filter_map(|folder| Some(folder.parent()?.join("include")))
        .find(|folder| folder.join("cuda_fp16.h").exists())
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> = fs::read_dir(folder)
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    entries.sort();
    entries
}

fn load(file: &Path) -> Option<Handle> {
    // SAFETY: runs the initialisers of NVIDIA's library, as linking against it would.
    unsafe { Handle::open(Some(file), RTLD_NOW | RTLD_LOCAL) }.ok()
}

/// Reason for which a function cannot be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The library is not installed.
    Library,
    /// The library is there, in a version without the function.
    Function,
}

/// A function's address, looked up once.
#[derive(Debug)]
pub(crate) struct Symbol {
    library: &'static Library,
    name: &'static str,
    address: OnceLock<Result<usize, Missing>>,
}

impl Symbol {
    pub(crate) const fn new(library: &'static Library, name: &'static str) -> Self {
        Self {
            library,
            name,
            address: OnceLock::new(),
        }
    }

    /// The function as a pointer of the prototype's C type.
    ///
    /// # Safety
    /// The prototype is that of the function of this name.
    pub(crate) unsafe fn typed<P: Prototype>(&self, _prototype: P) -> Result<P::Function, Missing> {
        // SAFETY: as the caller says.
        unsafe { self.function() }
    }

    /// The function as a pointer of this type.
    ///
    /// # Safety
    /// The type is a pointer to a C function, of the type of the function of this name.
    pub(crate) unsafe fn function<F>(&self) -> Result<F, Missing> {
        const { assert!(size_of::<F>() == size_of::<usize>()) };
        let address = (*self.address.get_or_init(|| {
            let library = self.library.open().ok_or(Missing::Library)?;
            // SAFETY: only the address is taken here.
            match unsafe { library.get::<*mut c_void>(self.name) } {
                Ok(symbol) if !symbol.is_null() => Ok(symbol.addr()),
                _ => Err(Missing::Function),
            }
        }))?;
        // SAFETY: `F` is a function pointer, of the size that is asserted above, and the address is that of the function
        // whose type the caller gave; the library is never closed.
        Ok(unsafe { std::mem::transmute_copy::<usize, F>(&address) })
    }
}

/// Calls `$function` of a library with cudarc's prototype: `Ok` with what C returns, or why it cannot be called.
/// Use it inside an unsafe block.
macro_rules! call {
    ($LIBRARY:ident, $module:ident, $function:ident($($argument:expr),* $(,)?)) => {{
        static SYMBOL: $crate::library::Symbol =
            $crate::library::Symbol::new(&$crate::library::$LIBRARY, stringify!($function));
        let prototype: unsafe fn($($crate::library::inferred!($argument)),*) -> _ = cudarc::$module::sys::$function;
        match SYMBOL.typed(prototype) {
            Ok(function) => Ok(function($($argument),*)),
            Err(missing) => Err(missing),
        }
    }};
}
pub(crate) use call;

macro_rules! inferred {
    ($argument:expr) => {
        _
    };
}
pub(crate) use inferred;

/// The type of a function in cudarc's `sys` modules, and its C function pointer.
pub(crate) trait Prototype {
    type Function;
}

/// A type in a prototype and how it is passed: enumerations as integers, as a library may return any value.
pub(crate) trait Argument {
    type Passed;
}

macro_rules! prototypes {
    () => { prototypes! { @ } };
    ($first:ident $($rest:ident)*) => {
        prototypes! { @ $first $($rest)* }
        prototypes! { $($rest)* }
    };
    (@ $($argument:ident)*) => {
        impl<R: Argument, $($argument: Argument),*> Prototype for unsafe fn($($argument),*) -> R {
            type Function = unsafe extern "C" fn($($argument::Passed),*) -> R::Passed;
        }
    };
}
prototypes! { A B C D E F G H I J K L M N O P Q S T U V W X }

macro_rules! unchanged {
    ($($type:ty),* $(,)?) => {$(
        impl Argument for $type {
            type Passed = $type;
        }
    )*};
}

macro_rules! as_integers {
    ($($module:ident: $($type:ident),* $(,)?;)*) => {$($(
        impl Argument for cudarc::$module::sys::$type {
            type Passed = u32;
        }
        const _: () = assert!(size_of::<cudarc::$module::sys::$type>() == size_of::<u32>());
    )*)*};
}

unchanged! {
    (), u8, u16, u32, u64, usize, i32, i64, f32, f64,
    cudarc::driver::sys::CUhostFn, cudarc::driver::sys::CUstreamCallback, cudarc::driver::sys::CUoccupancyB2DSize,
    cudarc::driver::sys::CUipcMemHandle, cudarc::driver::sys::CUipcEventHandle, cudarc::nccl::sys::ncclUniqueId,
}

as_integers! {
    driver: CUresult, CUdevice_attribute, CUdevice_P2PAttribute, CUpointer_attribute, CUfunction_attribute,
        CUfunc_cache, CUlimit, CUmem_advise, CUstreamCaptureMode, CUmemPool_attribute;
    nvrtc: nvrtcResult;
    cublas: cublasStatus_t, cublasOperation_t, cublasPointerMode_t, cublasAtomicsMode_t, cublasMath_t, cudaDataType_t,
        cublasComputeType_t, cublasGemmAlgo_t, libraryPropertyType;
    cublaslt: cublasStatus_t, cudaDataType_t, cublasComputeType_t, cublasLtMatmulDescAttributes_t,
        cublasLtMatrixLayoutAttribute_t, cublasLtMatmulPreferenceAttributes_t,
        cublasLtMatrixTransformDescAttributes_t;
    cudnn: cudnnStatus_t, cudnnDataType_t, cudnnTensorFormat_t, cudnnConvolutionMode_t, cudnnConvolutionFwdAlgo_t,
        cudnnSoftmaxAlgorithm_t, cudnnSoftmaxMode_t, cudnnActivationMode_t, cudnnNanPropagation_t, cudnnMathType_t,
        cudnnOpTensorOp_t;
    nccl: ncclResult_t, ncclDataType_t, ncclRedOp_t, ncclScalarResidence_t;
}

impl<T> Argument for *const T {
    type Passed = Self;
}

impl<T> Argument for *mut T {
    type Passed = Self;
}

#[cfg(test)]
mod tests {
    use super::*;

    static LIBC: Library = Library::new(&["libno-such-library.so.1", "libm.so.6"], &[]);
    static NOWHERE: Library = Library::new(&["libno-such-library.so.1"], &[]);

    unsafe fn floor(_: f64) -> f64 {
        0.0
    }

    #[test]
    fn a_function_is_found_in_the_first_library_that_is_there() {
        let symbol = Symbol::new(&LIBC, "floor");
        // SAFETY: C's floor takes and returns a double.
        let result = unsafe { symbol.typed(floor as unsafe fn(_) -> _).map(|floor| floor(2.5)) };
        assert_eq!(result, Ok(2.0));
    }

    #[test]
    fn a_missing_library_and_a_missing_function_differ() {
        for (library, missing) in [(&NOWHERE, Missing::Library), (&LIBC, Missing::Function)] {
            let symbol = Symbol::new(library, "no_such_function");
            // SAFETY: there is nothing to be called.
            let function = unsafe { symbol.typed(floor as unsafe fn(_) -> _) };
            assert_eq!(function.err(), Some(missing));
        }
    }
}
