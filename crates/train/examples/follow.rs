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
    let places = States::of(&follower)?.places(&checkpoint()?)?;
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
        States::given(&given, &places, index)?.restore(&mut follower)?;
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
        States::of(&follower)?.write(&directory.join("followed").join(name), &places)?;
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

    /// Returns the place of each weight in the checkpoint: the tensor with the same elements, in whatever order.
    fn places(&self, checkpoint: &Checkpoint) -> Result<HashMap<String, Place>> {
        let mut places = HashMap::new();
        for (tensor, _) in checkpoint.tensors() {
            let elements = checkpoint.tensor(tensor)?.to_f32().into_owned();
            let sorted = sorted(&elements);
            for (name, shape, bytes) in &self.tensors {
                let values = f32s(bytes);
                if values.len() != elements.len() {
                    continue;
                }
                let mut order: Vec<usize> = (0..values.len()).collect();
                if values != elements {
                    let own = self::sorted(&values);
                    if own
                        .iter()
                        .zip(&sorted)
                        .any(|(&at, &of)| values[at] != elements[of])
                    {
                        continue;
                    }
                    own.iter().zip(&sorted).for_each(|(&at, &of)| order[at] = of);
                }
                let place = Place {
                    tensor: tensor.to_owned(),
                    shape: shape.clone(),
                    order,
                };
                places.insert(name.clone(), place);
            }
        }
        Ok(places)
    }

    /// Returns the states of a file before step `index`.
    fn given(given: &SafeTensors<'_>, places: &HashMap<String, Place>, index: usize) -> Result<Self> {
        let mut tensors = Vec::new();
        for (state, Place { tensor, shape, order }) in places {
            for (part, end) in PARTS {
                let values = f32s(given.tensor(&format!("{part}.{tensor}"))?.data());
                let bytes = order.iter().flat_map(|&of| values[of].to_le_bytes()).collect();
                tensors.push((format!("{state}{end}"), shape.clone(), bytes));
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

    /// Writes the states under the names of the tensors, in their order.
    fn write(&self, file: &Path, places: &HashMap<String, Place>) -> Result<()> {
        let mut tensors = Vec::new();
        for (name, _, bytes) in &self.tensors {
            let (state, part) = PARTS
                .iter()
                .rev()
                .find_map(|(part, end)| Some((name.strip_suffix(end)?, part)))
                .ok_or("a state has an unknown name")?;
            let place = places
                .get(state)
                .ok_or_else(|| format!("`{state}` is no tensor"))?;
            let values = f32s(bytes);
            let mut ordered = vec![0.0; values.len()];
            place
                .order
                .iter()
                .zip(&values)
                .for_each(|(&of, &value)| ordered[of] = value);
            let bytes: Vec<u8> = ordered
                .iter()
                .flat_map(|value: &f32| value.to_le_bytes())
                .collect();
            tensors.push((format!("{part}.{}", place.tensor), vec![values.len()], bytes));
        }
        let views = tensors
            .iter()
            .map(|(name, shape, bytes)| Ok((name, TensorView::new(Dtype::F32, shape.clone(), bytes)?)));
        let views = views.collect::<Result<Vec<_>>>()?;
        Ok(fs::write(file, serialize(views, None)?)?)
    }
}

/// Place of a state's elements in the checkpoint.
struct Place {
    tensor: String,
    /// Shape of the state.
    shape: Vec<usize>,
    /// Index in the tensor of each element of the state.
    order: Vec<usize>,
}

/// Returns the indices of the elements, sorted by their values.
fn sorted(values: &[f32]) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..values.len()).collect();
    indices.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    indices
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
