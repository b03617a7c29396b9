"""Word, path or arrays -> Dataset: importing the room registers every source."""

from confide.core.records import Dataset, Split
from confide.data.arrays import arrays
from confide.data.cifar10 import cifar10
from confide.data.cifar100 import cifar100
from confide.data.clinc150 import clinc150
from confide.data.csv import csv
from confide.data.family import DATASETS, data_folder, load_dataset, names, recognises
from confide.data.fashion_sample import fashion_sample
from confide.data.folder import folder
from confide.data.hf import hf
from confide.data.jsonl import jsonl
from confide.data.lazy import LazyImages
from confide.data.mnist import mnist
from confide.data.npz import npz
from confide.data.parquet import parquet
from confide.data.parts import Found, Part
from confide.data.splits import cut
from confide.data.svhn import svhn
from confide.data.tiny_imagenet import tiny_imagenet
from confide.data.unlabelled import load_unlabelled
