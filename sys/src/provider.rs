//! Places that the libraries come from, and the tables once they are open.

mod names;
pub(crate) mod system;

use std::env::consts::DLL_SUFFIX;
use std::error::Error as _;
use std::ffi::{CString, OsStr, OsString, c_char};
use std::path::{self, Path, PathBuf};
use std::sync::OnceLock;
use std::{env, fmt};

use libloading::Library;

use crate::error::{Attempt, Error};
use crate::hip::hipError_t;
use crate::{AmdSmi, Hip, Hipblaslt, Hiprtc, Hipsparselt, Miopen, Rccl, Rocblas, Rocprofiler, Roctx, Table};
use hipvit_files::regular_file;

/// The providers that have a name.
const NAMED: &[&str] = &["rocm", "cuda", "emu"];

/// The library of the crate hip-on-cuda.
const HIP_ON_CUDA: &str = "libhip_on_cuda.so";

/// The library of the crate hip-emu, and its function that takes a provider's argument.
const HIP_EMU: &str = "libhip_emu.so";
const CONFIGURE: &str = "hip_emu_configure";

/// A place to look for libraries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// One shared library, with the functions of every table that it supports.
    File(PathBuf),
    /// A folder that holds libraries under the names that ROCm gives them.
    Folder(PathBuf),
    /// The system's loader: `LD_LIBRARY_PATH`, its cache, its default folders. On Windows the program's folder, System32 and the
    /// absolute folders of `PATH`.
    ///
    /// Never the working folder, although empty and relative entries of `LD_LIBRARY_PATH` mean it, and Windows' loader searches it:
    /// every user who can write there would choose the code that runs.
    System,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) | Self::Folder(path) => path.display().fmt(f),
            Self::System => f.write_str(system::SEARCH),
        }
    }
}

/// A library, or a set of them, with the C ABI of ROCm: AMD's own or a replacement.
///
/// Each library is opened once, at its first use; the table, or the error, is kept. All libraries come from the place where the
/// HIP runtime was found, so that a process never has two HIP runtimes. Only without a HIP runtime are the other libraries
/// searched everywhere.
///
/// Libraries are never unloaded, which ROCm's do not support. Use one provider per process: the loader resolves a library's
/// dependencies to whatever was loaded first under that name.
#[derive(Debug)]
pub struct Provider {
    places: Vec<Place>,
    /// The argument that the library gets before its first call.
    argument: Option<String>,
    hip: OnceLock<Result<(usize, Hip), Error>>,
    hiprtc: OnceLock<Result<Hiprtc, Error>>,
    rocblas: OnceLock<Result<Rocblas, Error>>,
    hipblaslt: OnceLock<Result<Hipblaslt, Error>>,
    hipsparselt: OnceLock<Result<Hipsparselt, Error>>,
    miopen: OnceLock<Result<Miopen, Error>>,
    rccl: OnceLock<Result<Rccl, Error>>,
    amd_smi: OnceLock<Result<AmdSmi, Error>>,
    roctx: OnceLock<Result<Roctx, Error>>,
    rocprofiler: OnceLock<Result<Rocprofiler, Error>>,
}

impl Provider {
    /// The provider that the environment names: `HIPVIT_PROVIDER` as for [`Provider::named`], else [`Provider::rocm`].
    ///
    /// # Errors
    /// `HIPVIT_PROVIDER` is not a provider.
    pub fn from_env() -> Result<Self, Error> {
        match variable("HIPVIT_PROVIDER") {
            Some(value) => Self::named(&value.to_string_lossy()),
            None => Ok(Self::rocm()),
        }
    }

    /// Returns the provider called `value`: a path, or a name, which may have an argument after a colon. With a separator of paths
    /// or `.so` (`.dll` on Windows) in it, it is the path of a shared library or of a folder of them. The names are `rocm` ([`Provider::rocm`]), `cuda`
    /// ([`Provider::cuda`]) and `emu` ([`Provider::emu`]). The argument of `emu` names the emulated devices: `emu:gfx942`,
    /// `emu:gfx1100x2`.
    ///
    /// # Errors
    /// There is nothing at the path, or no provider has the name.
    pub fn named(value: &str) -> Result<Self, Error> {
        let wrong = |cause: String| Error::Provider {
            value: value.to_owned(),
            cause,
        };
        if value.contains(['/', path::MAIN_SEPARATOR]) || value.to_ascii_lowercase().contains(DLL_SUFFIX) {
            let path = PathBuf::from(value);
            return match path.metadata() {
                Ok(metadata) if metadata.is_dir() => Ok(Self::search(vec![Place::Folder(path)])),
                // The loader would wait for a FIFO's writer.
                Ok(_) => match regular_file::check(&path) {
                    Ok(()) => Ok(Self::search(vec![Place::File(path)])),
                    Err(error) => Err(wrong(error.to_string())),
                },
                Err(error) => Err(wrong(error.to_string())),
            };
        }
        match value.split_once(':').unwrap_or((value, "")) {
            ("rocm", "") => Ok(Self::rocm()),
            (name @ ("cuda" | "emu"), _) if cfg!(not(target_os = "linux")) => {
                Err(wrong(format!("{name} exists for Linux only")))
            }
            ("cuda", "") => Ok(Self::cuda()),
            ("emu", "") => Ok(Self::emu(None)),
            ("emu", argument) => Ok(Self::emu(Some(argument))),
            (name @ ("rocm" | "cuda"), argument) => Err(wrong(format!(
                "{name} takes no argument, and `{argument}` is one"
            ))),
            (name, _) => Err(wrong(format!(
                "no provider is called `{name}`; known: {}, or the path of a library or folder",
                NAMED.join(", ")
            ))),
        }
    }

    /// AMD's libraries, searched in `$ROCM_PATH/lib`, `$HIP_PATH/lib`, `/opt/rocm/lib`, and by the system's loader. On Windows in
    /// `%ROCM_PATH%\\bin`, `%HIP_PATH%\\bin`, and as [`Place::System`] says.
    #[must_use]
    pub fn rocm() -> Self {
        Self::search(rocm_places(variable))
    }

    /// NVIDIA's libraries behind AMD's C ABI: `libhip_on_cuda.so` of the crate hip-on-cuda. It is searched in the folder of the
    /// running program, in that folder's parent, and in the sibling folder `lib`. Cargo puts tests and examples one folder
    /// deeper, and installers use `lib`.
    #[must_use]
    pub fn cuda() -> Self {
        Self::search(beside_program(HIP_ON_CUDA))
    }

    /// Emulated AMD GPUs: `libhip_emu.so` of the crate hip-emu, searched as [`Provider::cuda`] is. `devices` lists them, as
    /// `gfx90a` or `gfx942x2,gfx1100`; the default is in `HIP_EMU_ARCH`. A process has one set of devices: opening another
    /// provider with other `devices` is an error.
    #[must_use]
    pub fn emu(devices: Option<&str>) -> Self {
        let mut provider = Self::search(beside_program(HIP_EMU));
        provider.argument = devices.map(str::to_owned);
        provider
    }

    /// Searches these places in this order. In a folder, ROCm 7's libraries come before ROCm 6's. An existing file that
    /// cannot be loaded ends the search with an error.
    #[must_use]
    pub fn search(places: Vec<Place>) -> Self {
        Self {
            places,
            argument: None,
            hip: OnceLock::new(),
            hiprtc: OnceLock::new(),
            rocblas: OnceLock::new(),
            hipblaslt: OnceLock::new(),
            hipsparselt: OnceLock::new(),
            miopen: OnceLock::new(),
            rccl: OnceLock::new(),
            amd_smi: OnceLock::new(),
            roctx: OnceLock::new(),
            rocprofiler: OnceLock::new(),
        }
    }

    /// Returns what to check if the HIP runtime finds no device: NVIDIA's driver for hip-on-cuda, else AMD's driver.
    #[must_use]
    pub fn driver_advice(&self) -> &'static str {
        let file = self.hip().ok().and_then(|hip| hip.path().file_name());
        if file == Some(OsStr::new(HIP_ON_CUDA)) {
            "is NVIDIA's driver loaded, and does nvidia-smi list a GPU?"
        } else if cfg!(windows) {
            "is AMD's driver installed, and does the Device Manager list the GPU?"
        } else {
            "is the driver loaded, and may this user open /dev/kfd and /dev/dri?"
        }
    }

    /// The places that are searched.
    #[must_use]
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// The HIP runtime.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn hip(&self) -> Result<&Hip, Error> {
        self.home().map(|(_, hip)| hip)
    }

    /// hipRTC, the compiler.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn hiprtc(&self) -> Result<&Hiprtc, Error> {
        self.table(&self.hiprtc)
    }

    /// rocBLAS.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn rocblas(&self) -> Result<&Rocblas, Error> {
        self.table(&self.rocblas)
    }

    /// hipBLASLt.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn hipblaslt(&self) -> Result<&Hipblaslt, Error> {
        self.table(&self.hipblaslt)
    }

    /// hipSPARSELt.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn hipsparselt(&self) -> Result<&Hipsparselt, Error> {
        self.table(&self.hipsparselt)
    }

    /// MIOpen.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn miopen(&self) -> Result<&Miopen, Error> {
        self.table(&self.miopen)
    }

    /// RCCL.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn rccl(&self) -> Result<&Rccl, Error> {
        self.table(&self.rccl)
    }

    /// AMD SMI.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn amd_smi(&self) -> Result<&AmdSmi, Error> {
        self.table(&self.amd_smi)
    }

    /// roctx, for profilers.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn roctx(&self) -> Result<&Roctx, Error> {
        self.table(&self.roctx)
    }

    /// rocprofiler-sdk, for hardware counters.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn rocprofiler(&self) -> Result<&Rocprofiler, Error> {
        self.table(&self.rocprofiler)
    }

    /// The HIP runtime, and the index of the place where it is.
    fn home(&self) -> Result<&(usize, Hip), Error> {
        self.hip
            .get_or_init(|| open(&self.places, self.argument.as_deref()))
            .as_ref()
            .map_err(Clone::clone)
    }

    fn table<'a, T: Table>(&'a self, cell: &'a OnceLock<Result<T, Error>>) -> Result<&'a T, Error> {
        let opened = cell.get_or_init(|| {
            let places = match self.home() {
                // The HIP runtime of Windows' driver is in System32, and the other libraries are in the folders of the SDK.
                Ok((home, _)) if cfg!(windows) && self.places.get(*home) == Some(&Place::System) => {
                    &self.places
                }
                Ok((home, _)) => self.places.get(*home..=*home).unwrap_or_default(),
                Err(_) => &self.places,
            };
            open(places, None).map(|(_, table)| table)
        });
        opened.as_ref().map_err(Clone::clone)
    }
}

/// A variable that is set and not empty.
fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

fn rocm_places(variable: impl Fn(&str) -> Option<OsString>) -> Vec<Place> {
    let mut places = Vec::new();
    for root in [
        variable("ROCM_PATH"),
        variable("HIP_PATH"),
        system::default_root().map(PathBuf::into_os_string),
    ]
    .into_iter()
    .flatten()
    {
        let place = Place::Folder(PathBuf::from(root).join(system::FOLDER));
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places.push(Place::System);
    places
}

/// The places of a provider that is installed with the program.
fn beside_program(file: &str) -> Vec<Place> {
    let folder = env::current_exe()
        .ok()
        .and_then(|exe| Some(exe.parent()?.to_owned()));
    beside(&folder.unwrap_or_default(), file)
}

fn beside(folder: &Path, file: &str) -> Vec<Place> {
    let parent = folder.parent().unwrap_or(folder);
    [folder, parent, &parent.join("lib")]
        .map(|folder| Place::File(folder.join(file)))
        .to_vec()
}

/// Opens the first of the table's files that exists and passes it `argument`; returns the index of its place, too.
fn open<T: Table>(places: &[Place], argument: Option<&str>) -> Result<(usize, T), Error> {
    let mut tried = Vec::new();
    for (index, place) in places.iter().enumerate() {
        let (candidates, failed) = candidates::<T>(place);
        tried.extend(failed);
        for path in candidates {
            if *place != Place::System && !path.exists() {
                tried.push(Attempt {
                    path,
                    cause: Attempt::NO_SUCH_FILE.into(),
                });
                continue;
            }
            // In a folder, too, the loader would wait for a FIFO's writer.
            if *place != Place::System
                && let Err(error) = regular_file::check(&path)
            {
                tried.push(Attempt {
                    path,
                    cause: error.to_string(),
                });
                return Err(Error::Library {
                    library: T::LIBRARY,
                    tried: tried.into(),
                });
            }
            match system::open(&path) {
                Ok(library) => {
                    if let Some(argument) = argument {
                        configure(&library, argument)?;
                    }
                    let table = T::load(Box::leak(Box::new(library)), &path);
                    if table.missing().len() == T::FUNCTIONS.len() {
                        return Err(Error::Foreign {
                            library: T::LIBRARY,
                            path: path.into(),
                        });
                    }
                    return Ok((index, table));
                }
                Err(error) => {
                    tried.push(Attempt {
                        cause: cause(&error, &path),
                        path,
                    });
                    if *place != Place::System {
                        return Err(Error::Library {
                            library: T::LIBRARY,
                            tried: tried.into(),
                        });
                    }
                }
            }
        }
    }
    Err(Error::Library {
        library: T::LIBRARY,
        tried: tried.into(),
    })
}

/// Returns the files of a place that may be the table's, and the names that the place cannot have.
fn candidates<T: Table>(place: &Place) -> (Vec<PathBuf>, Vec<Attempt>) {
    let (mut files, mut failed) = (Vec::new(), Vec::new());
    match place {
        // A bare name would make the loader search its own folders.
        Place::File(path) => files.push(path::absolute(path).unwrap_or_else(|_| path.clone())),
        Place::Folder(folder) => {
            let named = T::SONAMES.iter().flat_map(|name| names::in_folder(folder, name));
            files.extend(named);
        }
        Place::System => {
            for name in T::SONAMES {
                let cause = match system::find(name) {
                    Ok(found) if found.is_empty() => Attempt::NO_SUCH_FILE.to_owned(),
                    Ok(found) => {
                        files.extend(found);
                        continue;
                    }
                    Err(cause) => cause,
                };
                failed.push(Attempt {
                    path: name.into(),
                    cause,
                });
            }
        }
    }
    (files, failed)
}

/// Passes the provider's argument to the library.
fn configure(library: &Library, argument: &str) -> Result<(), Error> {
    let refused = |cause: &str| Error::Provider {
        value: format!("emu:{argument}"),
        cause: cause.to_owned(),
    };
    let text = CString::new(argument).map_err(|_| refused("there is a zero in it"))?;
    // SAFETY: hip-emu exports it with this prototype.
    let function = unsafe { library.get::<unsafe extern "C" fn(*const c_char) -> hipError_t>(CONFIGURE) };
    let function = function.map_err(|_| refused("the library takes no argument"))?;
    // SAFETY: the text is a C string.
    match unsafe { function(text.as_ptr()) } {
        hipError_t::hipSuccess => Ok(()),
        hipError_t::hipErrorIllegalState => {
            Err(refused("other devices are emulated in this process already"))
        }
        _ => Err(refused(
            "no such devices; as `gfx942`, `gfx1100x2` or `gfx90a,gfx942`",
        )),
    }
}

/// The loader's message, which is the error's source, without the path with which it often starts.
fn cause(error: &libloading::Error, path: &Path) -> String {
    let message = error
        .source()
        .map_or_else(|| error.to_string(), ToString::to_string);
    let prefix = format!("{}: ", path.display());
    message.strip_prefix(&prefix).unwrap_or(&message).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders(variables: &[(&str, &str)]) -> Vec<String> {
        rocm_places(|name| {
            variables
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.into())
        })
        .iter()
        .map(ToString::to_string)
        .collect()
    }

    #[cfg(unix)]
    #[test]
    fn what_comes_with_the_program_is_searched_beside_it() {
        let places: Vec<_> = beside(Path::new("/opt/vit/bin"), HIP_ON_CUDA)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            places,
            [
                "/opt/vit/bin/libhip_on_cuda.so",
                "/opt/vit/libhip_on_cuda.so",
                "/opt/vit/lib/libhip_on_cuda.so"
            ]
        );
    }

    #[cfg(windows)]
    #[test]
    fn rocm_is_searched_in_the_documented_order() {
        assert_eq!(folders(&[]), [system::SEARCH]);
        assert_eq!(
            folders(&[("HIP_PATH", r"C:\AMD\ROCm\7.1\"), ("ROCM_PATH", r"D:\a")]),
            [r"D:\a\bin", r"C:\AMD\ROCm\7.1\bin", system::SEARCH]
        );
    }

    #[cfg(unix)]
    #[test]
    fn rocm_is_searched_in_the_documented_order() {
        assert_eq!(folders(&[]), ["/opt/rocm/lib", system::SEARCH]);
        assert_eq!(
            folders(&[("HIP_PATH", "/b"), ("ROCM_PATH", "/a")]),
            ["/a/lib", "/b/lib", "/opt/rocm/lib", system::SEARCH]
        );
        assert_eq!(
            folders(&[("ROCM_PATH", "/opt/rocm"), ("HIP_PATH", "/opt/rocm")]),
            ["/opt/rocm/lib", system::SEARCH]
        );
    }
}
