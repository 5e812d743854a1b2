//! Makes single steps of training from the states of another program, for `benches/training_proof.py`: `cargo run --release -p hipvit-train
//! --example follow -- DIRECTORY [DEVICE]`.
//!
//! `DIRECTORY/model` is a model, and `DIRECTORY/steps` has a file per step: `pixels`, `targets` and `rate`, and each trained tensor as
//! `weight.NAME`, `first_moment.NAME` and `second_moment.NAME`. These tensors after the step go to a file of the
//! same name in `DIRECTORY/followed`. A line of JSON per step has its loss, and the loss of a run that is not set to the states of the files.

use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use hipvit::model::Checkpoint;
use hipvit::tensor::Input;
use hipvit_train::{AdamWOptions, OptimizerOptions, TensorInfo, TensorRule, TrainOptions, Trainer};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors, serialize};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Metadata of a file of states, which begins with the number of steps and the number of updates.
const COUNTERS: &str = "hipvit.counters";

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let directory = PathBuf::from(arguments.first().ok_or("name a directory")?);
    let device = arguments.get(1).map_or("cpu", String::as_str);
    let checkpoint = || Checkpoint::open(Some(&directory.join("model")));
    let options = TrainOptions {
        device: device.parse()?,
        optimizer: OptimizerOptions::AdamW(AdamWOptions::default()),
        clip_norm: Some(1.0),
        ..TrainOptions::default()
    };
    let rule = |tensor: &TensorInfo<'_>| TensorRule {
        weight_decay: if tensor.shape.len() == 2 { 1e-3 } else { 0.0 },
        ..TensorRule::default()
    };
    let mut follower = Trainer::new(checkpoint()?, options.clone(), &rule)?;
    let mut free = Trainer::new(checkpoint()?, options, &rule)?;
    let names = States::of(&follower)?.names(&checkpoint()?)?;
    fs::create_dir_all(directory.join("followed"))?;
    let mut files: Vec<PathBuf> = fs::read_dir(directory.join("steps"))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.sort();
    for (index, file) in files.iter().enumerate() {
        let bytes = fs::read(file)?;
        let given = SafeTensors::deserialize(&bytes)?;
        let (pixels, targets) = (given.tensor("pixels")?, f32s(given.tensor("targets")?.data()));
        let rate = f32s(given.tensor("rate")?.data())[0];
        States::given(&given, &names, index)?.restore(&mut follower)?;
        let losses = [&mut follower, &mut free].map(|trainer| {
            let report = trainer.step(Input::Pixels(pixels.data()), &targets, rate);
            report.map(|report| report.loss)
        });
        let [followed, free] = losses;
        println!(
            r#"{{"step": {index}, "loss": {}, "free_loss": {}}}"#,
            followed?, free?
        );
        let name = file.file_name().ok_or("a step has no name")?;
        States::of(&follower)?.write(&directory.join("followed").join(name), &names)?;
    }
    Ok(())
}

/// Weights and moments of a trainer, by the names of the states.
struct States {
    tensors: Vec<(String, Vec<usize>, Vec<u8>)>,
    metadata: HashMap<String, String>,
}

impl States {
    fn of(trainer: &Trainer) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("states");
        trainer.save(&file)?;
        let bytes = fs::read(file)?;
        let (_, header) = SafeTensors::read_metadata(&bytes)?;
        let tensors = SafeTensors::deserialize(&bytes)?.tensors().into_iter();
        Ok(Self {
            tensors: tensors
                .map(|(name, view)| (name, view.shape().to_vec(), view.data().to_vec()))
                .collect(),
            metadata: header.metadata().clone().unwrap_or_default(),
        })
    }

    /// Returns the tensor of each weight: the one with the same elements.
    fn names(&self, checkpoint: &Checkpoint) -> Result<HashMap<String, (String, Vec<usize>)>> {
        let mut names = HashMap::new();
        for (tensor, _) in checkpoint.tensors() {
            let elements = checkpoint.tensor(tensor)?.to_f32().into_owned();
            let bytes: Vec<u8> = elements.iter().flat_map(|value| value.to_le_bytes()).collect();
            for (name, shape, _) in self.tensors.iter().filter(|(_, _, values)| *values == bytes) {
                names.insert(name.clone(), (tensor.to_owned(), shape.clone()));
            }
        }
        Ok(names)
    }

    /// Returns the states of a file before step `index`.
    fn given(
        given: &SafeTensors<'_>,
        names: &HashMap<String, (String, Vec<usize>)>,
        index: usize,
    ) -> Result<Self> {
        let mut tensors = Vec::new();
        for (state, (tensor, shape)) in names {
            for (part, end) in PARTS {
                let values = given.tensor(&format!("{part}.{tensor}"))?.data().to_vec();
                tensors.push((format!("{state}{end}"), shape.clone(), values));
            }
        }
        let counters = format!("[{index}, {index}, 1.0, 0]");
        Ok(Self {
            tensors,
            metadata: HashMap::from([(COUNTERS.to_owned(), counters)]),
        })
    }

    fn restore(&self, trainer: &mut Trainer) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("states");
        let views = self
            .tensors
            .iter()
            .map(|(name, shape, bytes)| Ok((name, TensorView::new(Dtype::F32, shape.clone(), bytes)?)));
        let views = views.collect::<Result<Vec<_>>>()?;
        fs::write(&file, serialize(views, Some(self.metadata.clone()))?)?;
        Ok(trainer.restore(&file)?)
    }

    /// Writes the states under the names of the tensors.
    fn write(&self, file: &Path, names: &HashMap<String, (String, Vec<usize>)>) -> Result<()> {
        let mut views = Vec::new();
        for (name, shape, bytes) in &self.tensors {
            let (state, part) = PARTS
                .iter()
                .rev()
                .find_map(|(part, end)| Some((name.strip_suffix(end)?, part)))
                .ok_or("a state has an unknown name")?;
            let (tensor, _) = names
                .get(state)
                .ok_or_else(|| format!("`{state}` is no tensor"))?;
            views.push((
                format!("{part}.{tensor}"),
                TensorView::new(Dtype::F32, shape.clone(), bytes)?,
            ));
        }
        Ok(fs::write(file, serialize(views, None)?)?)
    }
}

/// Names of the parts of a tensor's state in a step's file, and the ends of their names in a trainer.
const PARTS: [(&str, &str); 3] = [
    ("weight", ""),
    ("first_moment", ".first_moment"),
    ("second_moment", ".second_moment"),
];

fn f32s(bytes: &[u8]) -> Vec<f32> {
    let (values, _) = bytes.as_chunks::<4>();
    values.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
}
