// Package sbatch parses batch scripts and options written for Slurm and says
// what Berth makes of them. It parses exactly as the sbatch of Slurm 22.05
// does; what becomes of each option is one row of a table. It touches no
// files and no network: bytes and words in, a Request and Outcomes out.
package sbatch
