//! Parameters of which each of several ranks holds some rows.

use std::hash::{DefaultHasher, Hasher};
use std::ops::Range;
use std::path::Path;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::{Tensor, TensorData};
use highrank::shard::Share;

use crate::error::Result;
use crate::ranks::Ranks;
use crate::weights::{load_rows, load_weights, save_weights};

/// Bytes of all ranks that are gathered at once, about.
const BLOCK: usize = 1 << 26;
/// Parts in which a parameter is hashed: a copy of all would take as much memory as the gradient.
const HASHED: usize = 16;

/// The parameters of a module of which each of some ranks holds some rows, those of its words. All others are the same on all ranks.
///
/// Files hold whole parameters: they are gathered here before they are written, and cut here when they are read.
#[derive(Debug, Clone, Default)]
pub struct Shards {
    ranks: Ranks,
    ids: Vec<ParamId>,
    rows: Range<usize>,
    all: usize,
}

impl Shards {
    /// Parameters, and which of their rows this rank holds, as [`WordRows::shared`](crate::WordRows::shared) has them; with `None` there
    /// are none.
    pub fn new(ranks: &Ranks, shared: Option<(&Share, Vec<ParamId>)>) -> Self {
        shared.map_or_else(Self::default, |(share, ids)| Self {
            ranks: ranks.clone(),
            ids,
            rows: share.rows.clone(),
            all: share.all,
        })
    }

    /// The ranks that hold them.
    pub fn ranks(&self) -> &Ranks {
        &self.ranks
    }

    /// Whether there are none: this rank holds everything.
    pub fn are_none(&self) -> bool {
        self.ids.is_empty()
    }

    /// The rows that this rank holds, of [all](Self::all).
    pub(crate) fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// The rows of all ranks.
    pub(crate) fn all(&self) -> usize {
        self.all
    }

    /// Whether a parameter is one of them.
    pub fn hold(&self, id: ParamId) -> bool {
        self.ids.contains(&id)
    }

    /// The module with all rows at the first rank, and as it is at the others. All ranks call it.
    ///
    /// # Errors
    /// [`Error::Communication`](crate::Error::Communication).
    pub fn whole<M: Module>(&self, module: &M) -> Result<M> {
        if self.are_none() {
            return Ok(module.clone());
        }
        let mut gather = Gather { shards: self, result: Ok(()) };
        let whole = module.clone().map(&mut gather);
        gather.result.map(|()| whole)
    }

    /// Writes the whole module to `path`, if this is the first rank. All ranks call it; the others need no path.
    ///
    /// # Errors
    /// As [`save_weights`]; [`Error::Communication`](crate::Error::Communication).
    pub fn save<M: Module>(&self, module: &M, path: Option<&Path>) -> Result<()> {
        if path.is_none() && self.are_none() {
            return Ok(());
        }
        let whole = self.whole(module)?;
        path.map_or(Ok(()), |path| save_weights(&whole, path))
    }

    /// Reads this rank's rows of a whole module's weights, and all of the other parameters, into `module`.
    ///
    /// # Errors
    /// As [`load_weights`].
    pub fn load<M: Module>(&self, module: M, path: &Path) -> Result<M> {
        match self.are_none() {
            true => load_weights(module, path),
            false => load_rows(module, path, |id| self.hold(id), &self.rows, self.all),
        }
    }

    /// Checks that all groups of ranks that hold a module's rows have the same `module`, which is called `what`. All ranks of all
    /// groups call it.
    ///
    /// # Errors
    /// [`Error::RankDiffers`](crate::Error::RankDiffers), the same at every rank; [`Error::Communication`](crate::Error::Communication).
    pub fn check_same<M: Module>(&self, all: &Ranks, what: &str, module: &M) -> Result<()> {
        if !all.are_several() {
            return Ok(());
        }
        let [of_all, of_rows] = [DefaultHasher::new(), DefaultHasher::new()];
        let mut hash = Hash { shards: self, of_all, of_rows };
        module.visit(&mut hash);
        if !self.are_none() {
            let rows = self.ranks.gather_equal(&[hash.of_rows.finish()])?;
            rows.into_iter().for_each(|rows| hash.of_all.write_u64(rows));
        }
        all.check_same(&format!("the hash of the {what}"), &hash.of_all.finish())
    }

    /// The sum over ranks of a number of each.
    pub(crate) fn sum(&self, own: f64) -> Result<f64> {
        Ok(self.ranks.gather_equal(&[own])?.into_iter().sum())
    }

    /// The rows of all ranks at the first, as bytes, `row` of them each; none at the others. `own` are some of this rank's rows.
    pub(crate) fn gathered(&self, row: usize, own: impl Fn(Range<usize>) -> Vec<u8>) -> Result<Vec<u8>> {
        let firsts: Vec<u64> = self.ranks.gather_equal(&[self.rows.start as u64])?;
        let mut all = vec![0; if self.ranks.is_first() { self.all * row } else { 0 }];
        let most = self.all.div_ceil(self.ranks.size());
        // In blocks of rows: no rank makes a copy of all that it has.
        let block = (BLOCK / (row * self.ranks.size())).max(1);
        for start in (0..most).step_by(block) {
            let end = self.rows.len().min(start + block);
            let own = if start < end { own(start..end) } else { vec![] };
            let blocks = self.ranks.gather(&own)?;
            if self.ranks.is_first() {
                for (first, block) in firsts.iter().zip(blocks) {
                    all[(*first as usize + start) * row..][..block.len()].copy_from_slice(&block);
                }
            }
        }
        Ok(all)
    }
}

/// The hash of a module's parameters: of those that all ranks have, and of this rank's rows of the others.
struct Hash<'a> {
    shards: &'a Shards,
    of_all: DefaultHasher,
    of_rows: DefaultHasher,
}

impl ModuleVisitor for Hash<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let is_cut = self.shards.hold(param.id);
        let hash = if is_cut { &mut self.of_rows } else { &mut self.of_all };
        let value = param.val();
        let rows = value.dims()[0].div_ceil(HASHED);
        for block in value.split(rows, 0) {
            add(hash, block.into_data().as_bytes());
        }
    }
}

/// Its loop is compiled with this crate, and not again, less optimised, with each model that is trained.
#[inline(never)]
fn add(hash: &mut DefaultHasher, bytes: &[u8]) {
    hash.write(bytes);
}

struct Gather<'a> {
    shards: &'a Shards,
    result: Result<()>,
}

impl ModuleMapper for Gather<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if self.result.is_err() || !self.shards.hold(param.id) {
            return param;
        }
        let own = param.val().inner();
        let (device, dtype, mut shape) = (own.device(), own.dtype(), own.dims());
        shape[0] = self.shards.all;
        let row = shape[1..].iter().product::<usize>() * dtype.size();
        let rows = |rows| own.clone().slice_dim(0, rows).into_data().as_bytes().to_vec();
        match self.shards.gathered(row, rows) {
            Ok(all) if self.shards.ranks.is_first() => {
                let all = TensorData::from_bytes_vec(all, shape, dtype);
                Param::initialized(param.id, Tensor::from_data(all, (&device, dtype)))
            }
            gathered => {
                self.result = gathered.map(drop);
                param
            }
        }
    }
}
