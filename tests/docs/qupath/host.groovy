// Runs scripts with stand-ins for what QuPath gives them: host.groovy CASES, a JSON list of {script, project, image,
// annotations}. Prints as JSON what became of each.
import groovy.json.JsonOutput
import groovy.json.JsonSlurper

class Annotation {
    String id
    String pathClass
    boolean locked
    boolean area
    Map measurements

    boolean isLocked() { locked }
    def getMeasurementList() { measurements }
    def getROI() { this }
    boolean isArea() { area }
}

println JsonOutput.toJson(new JsonSlurper().parse(new File(args[0])).collect { one ->
    def objects = one.annotations.collect { new Annotation(it) }
    def written = [], said = new StringWriter()
    def binding = new Binding(
        out: new PrintWriter(said, true),
        PROJECT_BASE_DIR: one.project,
        buildFilePath: { String... parts -> parts.join(File.separator) },
        mkdirs: { String path -> new File(path).mkdirs() },
        getProjectEntry: { -> [getImageName: { -> one.image }] },
        getAnnotationObjects: { -> objects },
        removeObjects: { gone, boolean keepChildren -> objects.removeAll(gone) },
        addObjects: { more -> objects.addAll(more) },
        exportObjectsToGeoJson: { chosen, String path, String... options ->
            written << [ids: chosen*.id, path: path, options: options as List]
        }
    )
    new GroovyShell(this.class.classLoader, binding).evaluate(new File(one.script))
    [objects: objects.collect { it instanceof Annotation ? it.id : it }, written: written, said: said.toString().trim()]
})
