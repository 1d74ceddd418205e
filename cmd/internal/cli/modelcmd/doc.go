// Package modelcmd implements the commands of the predictor: predict,
// features and model.
package modelcmd
