//! Makes the device code that the crate embeds: the sources in `hip/`, always, for compilation at run time by hipRTC or
//! NVRTC; and code objects, for the architectures that the builder asks for.
//!
//! - `HIPVIT_OFFLOAD_ARCHS`: AMD targets, as `gfx90a,gfx942,gfx1100`. Compiled by `HIPVIT_HIPCC`, or the first found of
//!   `$ROCM_PATH/llvm/bin/amdclang++` (and below `/opt/rocm`), `amdclang++`, `hipcc`, `clang++`, `clang++-22` … `-18`.
//! - `HIPVIT_CUDA_ARCHS`: compute capabilities, as `80,90`. Compiled by `HIPVIT_NVCC`, or `$CUDA_PATH/bin/nvcc` (and
//!   below `/usr/local/cuda`), or `nvcc`, into cubins.
//!
//! Without these variables nothing is looked for and nothing is run: a build costs nobody seconds for targets that he
//! did not name, and needs cargo alone. With them, what cannot be built fails the build and says why; `HIPVIT_OFFLOAD_ARCHS=`
//! (empty) is as if it were not set.

use std::env;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

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
    let kernels = files(&hip, &["hip"])?;
    let mut headers = files(&hip, &["h"])?;
    headers.extend(files(&hip.join("include"), &["hpp", "h"])?);

    let mut jobs = Vec::new();
    if let Some(archs) = list("HIPVIT_OFFLOAD_ARCHS") {
        let compiler = amd_compiler()?;
        for arch in &archs {
            jobs.extend(
                kernels
                    .iter()
                    .map(|kernel| Job::amd(&compiler, kernel, arch, &out)),
            );
        }
    }
    if let Some(archs) = list("HIPVIT_CUDA_ARCHS") {
        let compiler = cuda_compiler()?;
        for arch in &archs {
            jobs.extend(
                kernels
                    .iter()
                    .map(|kernel| Job::cuda(&compiler, kernel, arch, &out)),
            );
        }
    }
    compile(&jobs, &hip.join("include"))?;
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

fn amd_compiler() -> Result<PathBuf> {
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

fn cuda_compiler() -> Result<PathBuf> {
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
) -> Result<PathBuf> {
    if let Some(named) = env::var_os(variable) {
        return Ok(named.into());
    }
    candidates
        .find(|compiler| Command::new(compiler).arg("--version").output().is_ok())
        .ok_or_else(|| format!("{missing}; {variable} may name one").into())
}

/// One kernel file for one architecture.
struct Job<'a> {
    compiler: PathBuf,
    source: &'a Path,
    arch: String,
    options: Vec<String>,
    object: PathBuf,
}

impl<'a> Job<'a> {
    fn amd(compiler: &Path, source: &'a Path, arch: &str, out: &Path) -> Self {
        // The kernels need neither ROCm's headers nor its device libraries.
        let options = [
            "-x",
            "hip",
            "-std=c++17",
            "-O3",
            "--cuda-device-only",
            "--no-gpu-bundle-output",
            "-nogpulib",
            "-nogpuinc",
        ];
        Self::new(
            compiler,
            source,
            arch,
            out,
            &options,
            format!("--offload-arch={arch}"),
        )
    }

    fn cuda(compiler: &Path, source: &'a Path, arch: &str, out: &Path) -> Self {
        let arch = format!("sm_{}", arch.trim_start_matches("sm_"));
        let target = format!("-arch={arch}");
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
        compiler: &Path,
        source: &'a Path,
        arch: &str,
        out: &Path,
        options: &[&str],
        target: String,
    ) -> Self {
        // A target may have features: gfx90a:xnack-.
        let name = format!("{}-{}.bin", stem(source), arch.replace(':', "_"));
        Self {
            compiler: compiler.to_owned(),
            source,
            arch: arch.to_owned(),
            options: options
                .iter()
                .map(|&option| option.to_owned())
                .chain([target])
                .collect(),
            object: out.join(name),
        }
    }

    fn run(&self, include: &Path) -> Result<()> {
        let output = Command::new(&self.compiler)
            .args(&self.options)
            .arg("-I")
            .arg(include)
            .arg(self.source)
            .arg("-o")
            .arg(&self.object)
            .output()
            .map_err(|error| format!("{}: {error}", self.compiler.display()))?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!(
            "{} cannot compile {} for {}:\n{}",
            self.compiler.display(),
            self.source.display(),
            self.arch,
            String::from_utf8_lossy(&output.stderr).trim_end()
        )
        .into())
    }
}

fn stem(path: &Path) -> String {
    path.file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// As many at once as cargo allows.
fn compile(jobs: &[Job<'_>], include: &Path) -> Result<()> {
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

/// Rust that embeds it all; `src/ops/launch/device_code.rs` includes it and says what each table is.
fn table(kernels: &[PathBuf], headers: &[PathBuf], jobs: &[Job<'_>]) -> Result<String> {
    let mut rust = String::new();
    for (name, files) in [("SOURCES", kernels), ("HEADERS", headers)] {
        writeln!(rust, "pub(super) static {name}: &[(&str, &str)] = &[")?;
        for file in files {
            let key = match name {
                "SOURCES" => stem(file),
                _ => file
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned(),
            };
            writeln!(
                rust,
                "    ({key:?}, include_str!({:?})),",
                file.display().to_string()
            )?;
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
