//! Prepares the device code that the crate embeds: always the sources in `hip/`, which hipRTC or NVRTC compile at run time;
//! and code objects for the architectures that these variables name:
//!
//! - `HIPVIT_OFFLOAD_ARCHS`: AMD targets, such as `gfx90a,gfx942,gfx1100`, and generic ones, such as `gfx11-generic`. Compiled by
//!   `HIPVIT_HIPCC`, or the first of `$ROCM_PATH/llvm/bin/amdclang++` (default `/opt/rocm`), `amdclang++`, `hipcc`, `clang++`, `clang++-22` … `-18`.
//! - `HIPVIT_CUDA_ARCHS`: compute capabilities, such as `80,90`. Compiled to cubins by `HIPVIT_NVCC`, or
//!   `$CUDA_PATH/bin/nvcc` (default `/usr/local/cuda`), or `nvcc`.
//!
//! Without them, or if they are empty, no compiler is looked for or run, and the build needs cargo alone. With them, a
//! kernel that does not compile fails the build.

use std::env;
use std::error::Error;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use cc::Tool;
use flate2::Compression;
use flate2::write::DeflateEncoder;

/// Folder of the programs of patterns of attention.
const PATTERNS: &str = "patterns";

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() {
    if let Err(error) = run() {
        for line in error.to_string().lines() {
            println!("cargo::error={line}");
        }
    }
}

fn run() -> Result<()> {
    for variable in [
        "HIPVIT_OFFLOAD_ARCHS",
        "HIPVIT_HIPCC",
        "HIPVIT_CUDA_ARCHS",
        "HIPVIT_NVCC",
        "ROCM_PATH",
        "CUDA_PATH",
    ] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=hip");

    let hip = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("hip");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let mut kernels = files(&hip, &["hip"])?;
    kernels.extend(files(&hip.join(PATTERNS), &["hip"])?);
    fs::create_dir_all(out.join(PATTERNS))?;
    let headers = headers(&hip)?;

    let amd = list("HIPVIT_OFFLOAD_ARCHS")
        .map(|archs| amd_compiler().map(|compiler| (compiler, archs)))
        .transpose()?;
    let cuda = list("HIPVIT_CUDA_ARCHS")
        .map(|archs| cuda_compiler().map(|compiler| (compiler, archs)))
        .transpose()?;
    let mut jobs = Vec::new();
    if let Some((compiler, archs)) = &amd {
        for arch in archs {
            jobs.extend(
                kernels
                    .iter()
                    .map(|kernel| Job::amd(compiler, kernel, arch, &out)),
            );
        }
    }
    if let Some((compiler, archs)) = &cuda {
        for arch in archs {
            jobs.extend(
                kernels
                    .iter()
                    .map(|kernel| Job::cuda(compiler, kernel, arch, &out)),
            );
        }
    }
    compile(&jobs, &[&hip, &hip.join("include")])?;
    let texts = kernels.iter().chain(headers.iter().map(|(_, file)| file));
    deflate(texts.cloned(), &out.join("device_code.deflate"))?;
    fs::write(out.join("device_code.rs"), table(&kernels, &headers, &jobs)?)?;
    Ok(())
}

/// The files of a directory with one of these extensions, sorted.
fn files(directory: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extensions.iter().any(|wanted| extension == *wanted))
        {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The headers that kernels include, with the names that they use: relative to `hip`, or to `hip/include`.
fn headers(hip: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut headers: Vec<_> = files(hip, &["h"])?
        .into_iter()
        .map(|file| (name(&file), file))
        .collect();
    let mut folders = Vec::new();
    for entry in fs::read_dir(hip)? {
        let path = entry?.path();
        if path.is_dir() {
            folders.push(path);
        }
    }
    folders.sort();
    for folder in folders {
        let prefix = if folder.ends_with("include") {
            String::new()
        } else {
            name(&folder) + "/"
        };
        let files = files(&folder, &["hpp", "h"])?.into_iter();
        headers.extend(files.map(|file| (format!("{prefix}{}", name(&file)), file)));
    }
    Ok(headers)
}

/// The items of a variable, separated by commas, semicolons or blanks; `None` if there are none.
fn list(variable: &str) -> Option<Vec<String>> {
    let value = env::var(variable).ok()?;
    let items: Vec<_> = value
        .split([',', ';', ' '])
        .filter(|item| !item.is_empty())
        .map(str::to_owned)
        .collect();
    (!items.is_empty()).then_some(items)
}

fn amd_compiler() -> Result<Tool> {
    let root = PathBuf::from(env::var_os("ROCM_PATH").unwrap_or_else(|| "/opt/rocm".into()));
    let names = ["amdclang++", "hipcc", "clang++"].map(str::to_owned);
    let versions = (18..=22).rev().map(|version| format!("clang++-{version}"));
    let candidates = [root.join("llvm/bin/amdclang++"), root.join("bin/amdclang++")];
    first_that_runs(
        "HIPVIT_HIPCC",
        "HIPVIT_OFFLOAD_ARCHS asks for AMD code, but no amdclang++, hipcc or clang++ was found",
        candidates
            .into_iter()
            .chain(names.into_iter().chain(versions).map(PathBuf::from)),
    )
}

fn cuda_compiler() -> Result<Tool> {
    let root = PathBuf::from(env::var_os("CUDA_PATH").unwrap_or_else(|| "/usr/local/cuda".into()));
    first_that_runs(
        "HIPVIT_NVCC",
        "HIPVIT_CUDA_ARCHS asks for CUDA code, but no nvcc was found",
        [root.join("bin/nvcc"), PathBuf::from("nvcc")].into_iter(),
    )
}

fn first_that_runs(
    variable: &str,
    missing: &str,
    mut candidates: impl Iterator<Item = PathBuf>,
) -> Result<Tool> {
    let path = match env::var_os(variable) {
        Some(named) => named.into(),
        None => candidates
            .find(|compiler| Command::new(compiler).arg("--version").output().is_ok())
            .ok_or_else(|| format!("{missing}; {variable} may name one"))?,
    };
    let tool = cc::Build::new()
        .cpp(true)
        .compiler(&path)
        .no_default_flags(true)
        .warnings(false)
        .extra_warnings(false)
        .inherit_rustflags(false)
        .cargo_metadata(false)
        .try_get_compiler();
    tool.map_err(|error| format!("{}: {error}", path.display()).into())
}

/// One kernel file for one architecture.
struct Job<'a> {
    compiler: &'a Tool,
    source: &'a Path,
    arch: String,
    options: Vec<String>,
    object: PathBuf,
}

impl<'a> Job<'a> {
    fn amd(compiler: &'a Tool, source: &'a Path, arch: &str, out: &Path) -> Self {
        // The kernels use neither ROCm's headers nor its device libraries.
        let mut options = vec![
            "-x",
            "hip",
            "-std=c++17",
            "-O3",
            "--cuda-device-only",
            "--no-gpu-bundle-output",
            "-nogpulib",
            "-nogpuinc",
        ];
        if arch.ends_with("-generic") {
            options.push("-mcode-object-version=6");
        }
        Self::new(
            compiler,
            source,
            arch,
            out,
            &options,
            format!("--offload-arch={arch}"),
        )
    }

    fn cuda(compiler: &'a Tool, source: &'a Path, arch: &str, out: &Path) -> Self {
        let (arch, target) = match arch.trim_start_matches("sm_") {
            // Every GPU of this capability has the instructions of 90a.
            "90" | "90a" => ("sm_90".into(), "-arch=sm_90a".into()),
            capability => (format!("sm_{capability}"), format!("-arch=sm_{capability}")),
        };
        Self::new(
            compiler,
            source,
            &arch,
            out,
            &["-x", "cu", "-std=c++17", "-O3", "-cubin"],
            target,
        )
    }

    fn new(
        compiler: &'a Tool,
        source: &'a Path,
        arch: &str,
        out: &Path,
        options: &[&str],
        target: String,
    ) -> Self {
        // A target may have features, as gfx90a:xnack- has.
        let name = format!("{}-{}.bin", stem(source), arch.replace(':', "_"));
        // The programs of patterns have kernels of equal names.
        let folder = if source.parent().is_some_and(|folder| folder.ends_with(PATTERNS)) {
            out.join(PATTERNS)
        } else {
            out.to_owned()
        };
        Self {
            compiler,
            source,
            arch: arch.to_owned(),
            options: options
                .iter()
                .map(|&option| option.to_owned())
                .chain([target])
                .collect(),
            object: folder.join(name),
        }
    }

    fn run(&self, include: &[&Path]) -> Result<()> {
        // Without cc's arguments, which are the host's: CXXFLAGS.
        let output = Command::new(self.compiler.path())
            .envs(self.compiler.get_envs())
            .args(&self.options)
            .args(
                include
                    .iter()
                    .flat_map(|folder| [OsStr::new("-I"), folder.as_os_str()]),
            )
            .arg(self.source)
            .arg("-o")
            .arg(&self.object)
            .output()
            .map_err(|error| format!("{}: {error}", self.compiler.path().display()))?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!(
            "{} cannot compile {} for {}:\n{}",
            self.compiler.path().display(),
            self.source.display(),
            self.arch,
            String::from_utf8_lossy(&output.stderr).trim_end()
        )
        .into())
    }
}

fn name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn stem(path: &Path) -> String {
    path.file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Runs the jobs, as many at once as cargo allows.
fn compile(jobs: &[Job<'_>], include: &[&Path]) -> Result<()> {
    let threads = env::var("NUM_JOBS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(1)
        .max(1);
    for batch in jobs.chunks(threads) {
        thread::scope(|scope| {
            let running: Vec<_> = batch
                .iter()
                .map(|job| scope.spawn(move || job.run(include)))
                .collect();
            running.into_iter().try_for_each(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err("a compiling thread panicked".into()))
            })
        })?;
    }
    Ok(())
}

/// Writes the texts of these files to `OUT_DIR`, one after the other and deflated: a quarter of their bytes.
fn deflate(files: impl Iterator<Item = PathBuf>, to: &Path) -> Result<()> {
    let mut texts = DeflateEncoder::new(fs::File::create(to)?, Compression::default());
    for file in files {
        texts.write_all(fs::read_to_string(file)?.as_bytes())?;
    }
    texts.finish()?;
    Ok(())
}

/// The Rust source of the tables of code objects, and of the sources' and headers' names and lengths in bytes, in the order of [`deflate`];
/// `device_code.rs` includes and documents them.
fn table(kernels: &[PathBuf], headers: &[(String, PathBuf)], jobs: &[Job<'_>]) -> Result<String> {
    let mut rust = String::new();
    let sources: Vec<_> = kernels.iter().map(|file| (stem(file), file.clone())).collect();
    for (table, files) in [("SOURCES", sources.as_slice()), ("HEADERS", headers)] {
        writeln!(rust, "static {table}: &[(&str, usize)] = &[")?;
        for (name, file) in files {
            writeln!(rust, "    ({name:?}, {}),", fs::metadata(file)?.len())?;
        }
        rust.push_str("];\n");
    }
    rust.push_str("pub(super) static OBJECTS: &[CodeObject] = &[\n");
    for job in jobs {
        writeln!(
            rust,
            "    CodeObject {{ kernel: {:?}, arch: {:?}, bytes: include_bytes!({:?}) }},",
            stem(job.source),
            job.arch,
            job.object.display().to_string()
        )?;
    }
    rust.push_str("];\n");
    Ok(rust)
}
