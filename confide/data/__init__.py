"""Word, path or arrays -> Dataset: `load_dataset`, and the sources it knows."""

from confide.data.arrays import arrays, npz
from confide.data.base import DATASETS, RawDataset, RawSplit, cut, data_folder, load_dataset, names, recognises
from confide.data.datasets import cifar10, cifar100, clinc150, fashion_sample, mnist, svhn, tiny_imagenet
from confide.data.folder import folder
from confide.data.images import LazyImages
from confide.data.tables import csv, hf, jsonl, parquet
from confide.data.unlabelled import load_unlabelled
from confide.records import Dataset, Split
