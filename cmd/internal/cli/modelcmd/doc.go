// Package modelcmd has the commands of the predictor: predict, features and model.
package modelcmd
